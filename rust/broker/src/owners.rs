//! Macros that define the owners of a layer, and borrow them from the layer above.

/// Defines a struct of borrows: one for each of the named owners, and further fields after `with`. Each borrow is a
/// separate field, so a method of one owner can be given another owner.
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

/// Creates such a struct from a value that has, or borrows, owners of the same names.
macro_rules! lend {
    ($from:ident => $($to:ident)::+ { $($owner:ident),+ } $(with { $($rest:tt)+ })?) => {
        $($to)::+ { $($owner: &mut $from.$owner,)+ $($($rest)+)? }
    };
}
