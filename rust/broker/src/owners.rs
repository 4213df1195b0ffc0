//! How a layer names the owners that its methods take, and how they are lent to it.

/// Defines a struct of borrows: one for each of the named owners, and behind `with` what it holds beside them. Each
/// borrow is a field of its own, so a method of one owner may be given another.
macro_rules! owners {
    (
        $(#[$about:meta])*
        pub struct $name:ident { $($owner:ident: $type:ty),+ $(,)? } $(with { $($rest:tt)+ })?
    ) => {
        $(#[$about])*
        #[derive(Debug)]
        pub struct $name<'a> {
            $(pub(crate) $owner: &'a mut $type,)+
            $($($rest)+)?
        }
    };
}

/// Makes such a struct from something that has, or borrows, owners of the same names.
macro_rules! lend {
    ($from:ident => $($to:ident)::+ { $($owner:ident),+ } $(with { $($rest:tt)+ })?) => {
        $($to)::+ { $($owner: &mut $from.$owner,)+ $($($rest)+)? }
    };
}
