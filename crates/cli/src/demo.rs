use crate::args::DemoArgs;
pub(crate) fn run(_args: &DemoArgs) -> anyhow::Result<u8> { Ok(0) }
