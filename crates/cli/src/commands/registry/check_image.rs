use super::team;
use super::view::CheckView;
use crate::args::CheckImageArgs;
use crate::commands::Context;
use crate::failure::{Exit, Failure};
use warren_proto::http::{CheckImage, ErrorCode};

/// Says whether an image can be had.
pub(super) async fn run(context: &Context, args: CheckImageArgs) -> Result<Exit, Failure> {
    let team_id = team(context, &args.owner);
    let reference = args.reference;
    let asked = CheckImage { reference: reference.clone(), team_id };
    let check = context.api.check_image(&asked).await.map_err(|error| Failure::from(error).about(&reference))?;
    if check.accessible || context.printer.is_json() {
        let exit = if check.accessible { Exit::Success } else { Exit::Failure };
        context.printer.show(&CheckView { reference, check })?;
        return Ok(exit);
    }
    let code = check.code.unwrap_or_default();
    let failure = Failure::new(format!("{} ({code})", check.details)).about(&reference);
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
    Err(known.map_or(failure.clone(), |known| failure.hint(known.remedy())))
}
