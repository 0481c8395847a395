//! The same code, compiled for processors of the last ten years.
//!
//! `x86_64` alone promises registers of 16 bytes and none of the instructions that find and count bits.
//! Changed bytes are found bit by bit, and pages are copied by the register.

/// Defines a function that is another one, compiled for wide registers and bit instructions where the processor has
/// them. What is to be compiled so is inlined into that one.
macro_rules! multiversion {
    ($(#[$about:meta])* $visible:vis fn $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $plain:path;) => {
        $(#[$about])*
        $visible fn $name($($arg: $type),*) -> $result {
            #[cfg(target_arch = "x86_64")]
            if $crate::multiversion::has_avx2() {
                #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
                fn compiled($($arg: $type),*) -> $result {
                    $plain($($arg),*)
                }
                // SAFETY: the processor has the features that the function is compiled for.
                #[allow(unsafe_code)]
                return unsafe { compiled($($arg),*) };
            }
            $plain($($arg),*)
        }
    };
}
pub(crate) use multiversion;

/// Whether the processor has them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn has_avx2() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx2") && has!("bmi1") && has!("bmi2") && has!("lzcnt") && has!("popcnt")
}
