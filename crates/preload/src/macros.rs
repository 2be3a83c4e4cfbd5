//! What makes functions of the rows of the table in `hooks`.

/// For each row the hook, one more for each alias, and in the module `next` the C library's own function of the first name.
macro_rules! hooks {
    ($( [$name:ident $($alias:ident)*] $arguments:tt -> $result:tt $deed:tt )*) => {
        $(
            hook!($name: $name $arguments -> $result $deed);
            $( hook!($alias: $name $arguments -> $result $deed); )*
        )*

        /// The C library's own functions.
        pub(crate) mod next {
            use super::*;
            use crate::next::Next;

            $( next!($name $arguments -> $result); )*

            /// Looks up all functions: afterwards none is looked up within a signal handler, or a child of fork.
            pub(crate) fn look_up() {
                $( $name::NEXT.address(); )*
            }
        }
    };
}

macro_rules! hook {
    ($name:ident: $next:ident($($argument:ident: $type:ty),*) -> $result:tt
        { if $ours:expr => $question:expr $(, then $news:expr)? }
    ) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "not every question has pointers")]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            // SAFETY: the caller gives what this function of the C library is to be given.
            if unsafe { $ours } && let Some(answer) = ask(|| unsafe { $question }) {
                return answer;
            }
            // SAFETY: as above.
            let result = unsafe { next::$next($($argument),*) };
            $( if active() {
                // SAFETY: as above, and as the function has left it.
                tell(|| unsafe { ($news)(result) });
            } )?
            result
        }
    };
    ($name:ident: $next:ident $arguments:tt -> $result:tt { then $news:expr }) => {
        hook!($name: $next $arguments -> $result { if false => unreachable!("it is never asked"), then $news });
    };
    ($name:ident: $next:ident($($argument:ident: $type:ty),*) -> $result:tt { when $condition:expr => $work:expr }) => {
        #[unsafe(no_mangle)]
        #[allow(unused_unsafe, reason = "not every question has pointers")]
        pub(crate) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
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

// Where panics abort, a call that may unwind is given a landing pad that aborts, and cancellation with it; one that may not is given none,
// and is unwound through. Where panics unwind, it is the other way round.
#[cfg(panic = "abort")]
macro_rules! next {
    ($($row:tt)*) => { next_as!("C" $($row)*); };
}
#[cfg(not(panic = "abort"))]
macro_rules! next {
    ($($row:tt)*) => { next_as!("C-unwind" $($row)*); };
}

macro_rules! next_as {
    ($abi:literal $name:ident($($argument:ident: $type:ty),*) -> $result:tt) => {
        pub(super) mod $name {
            use super::*;

            const NAME: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            };
            pub(super) static NEXT: Next = Next::new(NAME);
        }

        #[inline(always)]
        pub(crate) unsafe extern $abi fn $name($($argument: $type),*) -> $result {
            type Function = unsafe extern $abi fn($($type),*) -> $result;
            // SAFETY: the address is that of the C library's function of this name, which has this type.
            let function = unsafe { std::mem::transmute::<*mut c_void, Function>($name::NEXT.address()) };
            // SAFETY: the caller gives what it is to be given.
            unsafe { function($($argument),*) }
        }
    };
}
