//! Macros that make functions of the rows of the table in `hooks`.

/// For each row the hook, one more for each alias, and in the module `next` the C library's own function of the first name.
macro_rules! hooks {
    ($( [$name:ident $($alias:ident)*] $arguments:tt -> $result:tt $deed:tt )*) => {
        $(
            unwound!(hook $name: $name $arguments -> $result $deed);
            $( unwound!(hook $alias: $name $arguments -> $result $deed); )*
        )*

        /// The C library's own functions.
        pub(crate) mod next {
            use super::*;
            use crate::next::Next;

            $( unwound!(next $name $arguments -> $result); )*

            /// Looks up all functions: afterwards none is looked up within a signal handler, or a child of fork.
            pub(crate) fn look_up() {
                $( $name::NEXT.address(); )*
            }
        }
    };
}

/// Gives a macro the convention of functions that a thread is unwound through when it is cancelled.
///
/// Where panics abort, a call that may unwind is given a landing pad that aborts; one that may not is given none, and can be unwound
/// through. Where panics unwind, it is the other way round.
#[cfg(panic = "abort")]
macro_rules! unwound {
    ($macro:ident $($row:tt)*) => { $macro!("C" $($row)*); };
}
#[cfg(not(panic = "abort"))]
macro_rules! unwound {
    ($macro:ident $($row:tt)*) => { $macro!("C-unwind" $($row)*); };
}

/// Functions of the C library that are not hooked, and that end a thread which is cancelled.
macro_rules! pthread {
    ($abi:literal) => {
        unsafe extern $abi {
            fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
            fn pthread_testcancel();
        }
    };
}

/// A hook. What is the kernel's goes straight on: a comparison and a jump. All else is in `after_asking`.
macro_rules! hook {
    ($abi:literal $name:ident: $next:ident($($argument:ident: $type:ty),*) -> $result:tt
        { if $ours:expr => $question:expr }
    ) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "not every question has pointers")]
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            #[cold]
            #[inline(never)]
            unsafe extern $abi fn after_asking($($argument: $type),*) -> $result {
                // SAFETY: the caller gives what this function of the C library is to be given.
                match ask(|| unsafe { $question }) {
                    Some(answer) => answer,
                    // SAFETY: as above.
                    None => unsafe { next::$next($($argument),*) },
                }
            }
            // SAFETY: the caller gives what this function of the C library is to be given.
            if unsafe { $ours } {
                // SAFETY: as above.
                return unsafe { after_asking($($argument),*) };
            }
            // SAFETY: as above.
            unsafe { next::$next($($argument),*) }
        }
    };
    ($abi:literal $name:ident: $next:ident($($argument:ident: $type:ty),*) -> $result:tt
        { $(if $ours:expr => $question:expr,)? then $news:expr }
    ) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "not every question and not all news has pointers")]
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            $(
                // SAFETY: the caller gives what this function of the C library is to be given.
                if $ours && let Some(answer) = ask(|| unsafe { $question }) {
                    return answer;
                }
            )?
            // SAFETY: as above.
            let result = unsafe { next::$next($($argument),*) };
            if active() {
                // SAFETY: as above, and as the function has left it.
                tell(|| unsafe { ($news)(result) });
            }
            result
        }
    };
    ($abi:literal $name:ident: $next:ident($($argument:ident: $type:ty),*) -> $result:tt
        { when $condition:expr => $work:expr }
    ) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "not all work has pointers")]
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            if $condition {
                // SAFETY: the caller gives what this function of the C library is to be given.
                unsafe { $work }
            } else {
                // SAFETY: as above.
                unsafe { next::$next($($argument),*) }
            }
        }
    };
}

macro_rules! next {
    ($abi:literal $name:ident($($argument:ident: $type:ty),*) -> $result:tt) => {
        pub(super) mod $name {
            use super::*;

            const NAME: &std::ffi::CStr =
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                };
            pub(super) static NEXT: Next = Next::new(NAME);
            pub(super) type Function = unsafe extern $abi fn($($type),*) -> $result;

            #[cold]
            #[inline(never)]
            pub(super) unsafe extern $abi fn look_up($($argument: $type),*) -> $result {
                // SAFETY: the address is that of the C library's function of this name, which has this type.
                let function = unsafe { std::mem::transmute::<*mut c_void, Function>(NEXT.address()) };
                // SAFETY: the caller gives what it is to be given.
                unsafe { function($($argument),*) }
            }
        }

        #[inline(always)]
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            match $name::NEXT.known() {
                Some(known) => {
                    // SAFETY: the address is that of the C library's function of this name, which has this type.
                    let function = unsafe { std::mem::transmute::<*mut c_void, $name::Function>(known.as_ptr()) };
                    // SAFETY: the caller gives what it is to be given.
                    unsafe { function($($argument),*) }
                }
                // SAFETY: as above.
                None => unsafe { $name::look_up($($argument),*) },
            }
        }
    };
}
