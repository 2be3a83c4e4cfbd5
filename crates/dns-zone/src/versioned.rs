//! Arrays of which the versions of a zone share what did not change.
//!
//! ```text
//!   base      | one long array, as it was built; all versions read it                          |
//!   groups    | none | none | group | none |           of one version
//!                              └─ pages | none | page | none |
//!                                                  └─ 128 elements, in place of those of the base, or behind them
//! ```
//!
//! A version begins as a copy of another one: it copies the list of groups, and shares groups and pages. What it then changes it copies
//! first, a page at a time, unless nobody else has it. While nothing was changed, a look at an element costs one comparison more than a look
//! into a slice.

use std::ops::Index;
use std::sync::Arc;

/// Elements of a page.
const PAGE: usize = 128;
/// Pages of a group.
const GROUP: usize = 128;

/// An array that is built once, and then has versions.
#[derive(Clone, Debug)]
pub struct Array<T>(ArrayForm<T>);

#[derive(Clone, Debug)]
enum ArrayForm<T> {
    /// In the making.
    Growing(Vec<T>),
    Shared(SharedArray<T>),
}

#[derive(Clone, Debug)]
struct SharedArray<T> {
    base: Arc<Vec<T>>,
    len: usize,
    groups: Vec<Option<Arc<Group<T>>>>,
}

type Group<T> = [Option<Arc<[T; PAGE]>>; GROUP];

impl<T> Default for Array<T> {
    fn default() -> Array<T> {
        Array(ArrayForm::Growing(Vec::new()))
    }
}

impl<T> From<Vec<T>> for Array<T> {
    fn from(elements: Vec<T>) -> Array<T> {
        Array(ArrayForm::Growing(elements))
    }
}

impl<T: Copy + Default> Array<T> {
    /// Number of elements.
    #[inline(always)]
    pub fn len(&self) -> usize {
        match &self.0 {
            ArrayForm::Growing(elements) => elements.len(),
            ArrayForm::Shared(shared) => shared.len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The element number `at`.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&T> {
        match &self.0 {
            ArrayForm::Growing(elements) => elements.get(at),
            ArrayForm::Shared(shared) => shared.get(at),
        }
    }

    /// Access to the element number `at`, for this version alone.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub fn get_mut(&mut self, at: usize) -> &mut T {
        match &mut self.0 {
            ArrayForm::Growing(elements) => &mut elements[at],
            ArrayForm::Shared(shared) => {
                assert!(at < shared.len, "element {at} of {}", shared.len);
                shared.own(at)
            }
        }
    }

    /// Adds an element at the end, for this version alone.
    #[inline]
    pub fn push(&mut self, element: T) {
        match &mut self.0 {
            ArrayForm::Growing(elements) => elements.push(element),
            ArrayForm::Shared(shared) => {
                shared.len += 1;
                *shared.own(shared.len - 1) = element;
            }
        }
    }

    /// Ends the making: from now on versions share it.
    pub fn share(&mut self) {
        if let ArrayForm::Growing(elements) = &mut self.0 {
            let mut elements = std::mem::take(elements);
            elements.shrink_to_fit();
            let (len, base) = (elements.len(), Arc::new(elements));
            self.0 = ArrayForm::Shared(SharedArray { base, len, groups: Vec::new() });
        }
    }

    /// Makes room for `more` elements, if there is memory for them, and it is in the making.
    pub fn reserve(&mut self, more: usize) {
        if let ArrayForm::Growing(elements) = &mut self.0 {
            // Without that room things go on as they would without this call.
            let _ = elements.try_reserve_exact(more);
        }
    }

    /// Hints that the element number `at` is read soon.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        match &self.0 {
            ArrayForm::Growing(elements) => prefetch::read(elements, at),
            ArrayForm::Shared(shared) => prefetch::read(&shared.base, at),
        }
    }

    /// Octets of memory, those that it shares with other versions included.
    pub fn memory(&self) -> usize {
        match &self.0 {
            ArrayForm::Growing(elements) => elements.capacity() * size_of::<T>(),
            ArrayForm::Shared(shared) => shared.base.capacity() * size_of::<T>() + shared.own_memory(),
        }
    }
}

impl<T: Copy + Default> SharedArray<T> {
    #[inline(always)]
    fn get(&self, at: usize) -> Option<&T> {
        match self.groups.get(at / (PAGE * GROUP)) {
            Some(Some(group)) => self.get_of_group(group, at),
            _ => self.base.get(at),
        }
    }

    fn get_of_group<'s>(&'s self, group: &'s Group<T>, at: usize) -> Option<&'s T> {
        match &group[at / PAGE % GROUP] {
            Some(page) => page.get(at % PAGE).filter(|_| at < self.len),
            None => self.base.get(at),
        }
    }

    /// The element in a page of this version's own.
    fn own(&mut self, at: usize) -> &mut T {
        let number = at / (PAGE * GROUP);
        if number >= self.groups.len() {
            self.groups.resize(number + 1, None);
        }
        let group = self.groups[number].get_or_insert_with(|| Arc::new([const { None }; GROUP]));
        let page = &mut Arc::make_mut(group)[at / PAGE % GROUP];
        let page = page.get_or_insert_with(|| Arc::new(page_of(&self.base, at / PAGE)));
        &mut Arc::make_mut(page)[at % PAGE]
    }

    fn own_memory(&self) -> usize {
        let groups = self.groups.iter().flatten();
        let pages: usize = groups.clone().map(|group| group.iter().flatten().count()).sum();
        self.groups.capacity() * size_of::<usize>()
            + groups.count() * size_of::<Group<T>>()
            + pages * size_of::<[T; PAGE]>()
    }
}

/// A copy of a page of the base, which may end within it or in front of it.
fn page_of<T: Copy + Default>(base: &[T], number: usize) -> [T; PAGE] {
    let mut page = [T::default(); PAGE];
    page.iter_mut().zip(base.iter().skip(number * PAGE)).for_each(|(to, from)| *to = *from);
    page
}

/// A list of fixed length whose versions share all pages but those that they change. A copy costs as much as the list of its pages, a change a copy of
/// one page, however many elements there are.
#[derive(Clone, Debug)]
pub struct Pages<T> {
    pages: Vec<Arc<[T; PAGE]>>,
    len: usize,
}

impl<T> Default for Pages<T> {
    fn default() -> Pages<T> {
        Pages { pages: Vec::new(), len: 0 }
    }
}

impl<T: Clone + Default> FromIterator<T> for Pages<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Pages<T> {
        let (mut elements, mut list) = (elements.into_iter().peekable(), Pages::default());
        while elements.peek().is_some() {
            let page = std::array::from_fn(|_| {
                let element = elements.next();
                list.len += usize::from(element.is_some());
                element.unwrap_or_default()
            });
            list.pages.push(Arc::new(page));
        }
        list
    }
}

impl<T> Index<usize> for Pages<T> {
    type Output = T;

    /// The element number `at`. Behind the last one, up to the end of its page, they have their default.
    #[inline(always)]
    fn index(&self, at: usize) -> &T {
        &self.pages[at / PAGE][at % PAGE]
    }
}

impl<T: Clone> Pages<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// All elements in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        let padding = self.pages.len() * PAGE - self.len;
        self.pages.iter().enumerate().flat_map(move |(number, page)| {
            let is_last = number + 1 == self.pages.len();
            &page[..if is_last { PAGE - padding } else { PAGE }]
        })
    }

    /// The element number `at`, if there is one.
    pub fn get(&self, at: usize) -> Option<&T> {
        (at < self.len).then(|| &self[at])
    }

    /// Replaces the element number `at`, in this version alone.
    ///
    /// # Panics
    /// If there is none.
    pub fn set(&mut self, at: usize, element: T) {
        assert!(at < self.len, "element {at} of {}", self.len);
        Arc::make_mut(&mut self.pages[at / PAGE])[at % PAGE] = element;
    }

    /// How many pages are not those of `other`.
    pub fn pages_unlike(&self, other: &Pages<T>) -> usize {
        let shared = self.pages.iter().zip(&other.pages).filter(|(own, others)| Arc::ptr_eq(own, others));
        self.pages.len() - shared.count()
    }
}

/// Octets that are added at the end, item by item, and never changed once they are shared.
///
/// An item is found by where it begins, and lies there in one piece. Behind the base items lie in chunks, each with `SPAN` places of its
/// own, of which it seldom fills more than a quarter.
#[derive(Clone, Debug)]
pub struct Octets {
    form: OctetsForm,
    /// Where the first octet stands. Tests begin beyond what 32 bits tell apart.
    #[cfg(test)]
    first: usize,
}

#[derive(Clone, Debug)]
enum OctetsForm {
    /// In the making.
    Growing(Vec<u8>),
    Shared {
        base: Arc<Vec<u8>>,
        chunks: Vec<Arc<Vec<u8>>>,
    },
}

/// Places of a chunk: it begins no item beyond [`CHUNK`], and no item is longer than the rest.
const SPAN: usize = 1 << 17;
/// A chunk of that many octets takes no more items.
const CHUNK: usize = 1 << 15;

impl Default for Octets {
    fn default() -> Octets {
        Octets::from(Vec::new())
    }
}

impl From<Vec<u8>> for Octets {
    fn from(octets: Vec<u8>) -> Octets {
        Octets {
            form: OctetsForm::Growing(octets),
            #[cfg(test)]
            first: 0,
        }
    }
}

impl Octets {
    /// Octets of which the first stands at `first`.
    #[cfg(test)]
    pub(crate) fn starting_at(first: usize) -> Octets {
        Octets { first, ..Octets::default() }
    }

    /// Begins an item, which may have up to 96 KiB, and says where.
    #[inline]
    pub fn begin_item(&mut self) -> usize {
        let first = self.first();
        match &mut self.form {
            OctetsForm::Growing(octets) => first + octets.len(),
            OctetsForm::Shared { base, chunks } => {
                if chunks.last().is_none_or(|chunk| chunk.len() >= CHUNK) {
                    chunks.push(Arc::default());
                }
                let number = chunks.len() - 1;
                first + base.len() + number * SPAN + chunks[number].len()
            }
        }
    }

    /// Adds octets to the last item.
    ///
    /// # Panics
    /// If no item was begun.
    #[inline]
    pub fn extend_from_slice(&mut self, octets: &[u8]) {
        match &mut self.form {
            OctetsForm::Growing(own) => own.extend_from_slice(octets),
            OctetsForm::Shared { chunks, .. } => {
                let chunk = chunks.last_mut().expect("an item was begun");
                Arc::make_mut(chunk).extend_from_slice(octets);
            }
        }
    }

    /// What stands from `at` on, the item that begins there and more; `None` if nothing does.
    #[inline(always)]
    pub fn get(&self, at: usize) -> Option<&[u8]> {
        let at = at.wrapping_sub(self.first());
        match &self.form {
            OctetsForm::Growing(octets) => octets.get(at..),
            OctetsForm::Shared { base, .. } if at < base.len() => base.get(at..),
            OctetsForm::Shared { base, chunks } => {
                let beyond = at - base.len();
                chunks.get(beyond / SPAN)?.get(beyond % SPAN..)
            }
        }
    }

    /// The octets from `at` on, to be written; `None` if other versions may share them.
    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let at = at.wrapping_sub(self.first());
        match &mut self.form {
            OctetsForm::Growing(octets) => octets.get_mut(at..),
            OctetsForm::Shared { base, chunks } => {
                let beyond = at.checked_sub(base.len())?;
                Arc::get_mut(chunks.get_mut(beyond / SPAN)?)?.get_mut(beyond % SPAN..)
            }
        }
    }

    /// Hints that the octet `at` is read soon.
    #[inline(always)]
    pub fn prefetch(&self, at: usize) {
        let at = at.wrapping_sub(self.first());
        match &self.form {
            OctetsForm::Growing(octets) => prefetch::read(octets, at),
            OctetsForm::Shared { base, .. } => prefetch::read(base, at),
        }
    }

    /// Ends the making: from now on versions share it.
    pub fn share(&mut self) {
        if let OctetsForm::Growing(octets) = &mut self.form {
            let mut octets = std::mem::take(octets);
            octets.shrink_to_fit();
            self.form = OctetsForm::Shared { base: Arc::new(octets), chunks: Vec::new() };
        }
    }

    /// Octets behind the base, or a little more.
    pub(crate) fn own_len(&self) -> usize {
        match &self.form {
            OctetsForm::Growing(_) => 0,
            OctetsForm::Shared { chunks, .. } => chunks.len() * CHUNK,
        }
    }

    /// Octets in front of any chunk.
    pub(crate) fn base_len(&self) -> usize {
        match &self.form {
            OctetsForm::Growing(octets) => octets.len(),
            OctetsForm::Shared { base, .. } => base.len(),
        }
    }

    /// Makes room for `more` octets, if there is memory for them, and it is in the making.
    pub(crate) fn reserve(&mut self, more: usize) {
        if let OctetsForm::Growing(octets) = &mut self.form {
            // Without that room things go on as they would without this call.
            let _ = octets.try_reserve_exact(more);
        }
    }

    /// Octets of memory, those that it shares with other versions included.
    pub fn memory(&self) -> usize {
        match &self.form {
            OctetsForm::Growing(octets) => octets.capacity(),
            OctetsForm::Shared { base, chunks } => {
                base.capacity() + chunks.iter().map(|chunk| chunk.capacity()).sum::<usize>()
            }
        }
    }

    #[cfg(test)]
    fn first(&self) -> usize {
        self.first
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, reason = "tests have one that is not zero")]
    #[inline(always)]
    fn first(&self) -> usize {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(len: u32) -> Array<u32> {
        let mut array = Array::from((0..len).collect::<Vec<_>>());
        array.share();
        array
    }

    #[test]
    fn a_version_changes_and_grows_and_the_one_before_stays() {
        let before = shared(100_000);
        let mut after = before.clone();
        for at in [0, 127, 128, 16_383, 16_384, 99_999] {
            *after.get_mut(at) += 1;
        }
        (100_000..150_000).for_each(|element| after.push(element));
        let changed = |at: &usize| after.get(*at) != before.get(*at);
        assert_eq!((0..100_000).filter(changed).collect::<Vec<_>>(), [0, 127, 128, 16_383, 16_384, 99_999]);
        assert_eq!((before.len(), before.get(100_000)), (100_000, None));
        assert_eq!((after.len(), after.get(149_999), after.get(150_000)), (150_000, Some(&149_999), None));
    }

    #[test]
    fn a_version_of_much_costs_little() {
        let before = shared(10_000_000);
        let mut after = before.clone();
        *after.get_mut(5_000_000) = 1;
        assert!(after.memory() - before.memory() < 10_000);
    }

    #[test]
    fn a_list_shares_all_pages_with_the_version_before_but_those_that_changed() {
        let before: Pages<usize> = (0..1000).collect();
        let mut after = before.clone();
        [0, 127, 999].into_iter().for_each(|at| after.set(at, 5000 + at));
        assert_eq!((after.len(), after.pages_unlike(&before)), (1000, 2));
        let changed: Vec<usize> = (0..1000).filter(|at| after[*at] != before[*at]).collect();
        assert_eq!(changed, [0, 127, 999]);
        assert_eq!((after.iter().count(), after.iter().next_back()), (1000, Some(&5999)));
        assert!(before.iter().copied().eq(0..1000) && before.get(1000).is_none());
        assert!(Pages::<usize>::default().iter().next().is_none());
    }

    #[test]
    fn octets_of_a_version_are_found_where_they_were_begun() {
        let mut octets = Octets::from(b"base".to_vec());
        octets.share();
        let before = octets.clone();
        let items: Vec<(usize, Vec<u8>)> = (0..300usize)
            .map(|number| {
                let item = vec![number as u8; number * 200];
                let at = octets.begin_item();
                octets.extend_from_slice(&item);
                (at, item)
            })
            .collect();
        for (at, item) in &items {
            assert!(octets.get(*at).unwrap().starts_with(item));
        }
        assert_eq!((octets.get(0), before.get(4), octets.get(usize::MAX)), (Some(&b"base"[..]), None, None));
    }
}
