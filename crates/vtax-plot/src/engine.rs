//! QuickJS with the drawing library, and its limits of memory and time.

use std::{
    cell::Cell,
    rc::Rc,
    time::{Duration, Instant},
};

use rquickjs::{CatchResultExt as _, CaughtError, Context, Ctx, FromJs, Function, Promise, Runtime};

/// Drawing library, built by `scripts/vega.sh`.
const LIBRARY: &str = include_str!("../bundle/draw.min.js");

/// Memory limit: four times the memory for a chart with the maximum number of figures. QuickJS is known to crash at
/// this limit in rare cases, so the limit on the number of figures comes first.
const MOST_MEMORY: usize = 512 << 20;

/// Stack limit: less than the stack of a Rust thread, because the frames above QuickJS's own aren't counted.
const MOST_STACK: usize = 1 << 20;

/// Failure of the library.
#[derive(Debug)]
pub(crate) enum VegaFault {
    /// Stopped at the deadline.
    Late,
    /// Exception, with the library's message.
    Thrown(String),
}

impl VegaFault {
    fn thrown(error: impl ToString) -> VegaFault {
        VegaFault::Thrown(error.to_string())
    }
}

/// JavaScript engine with Vega loaded. It belongs to the thread that created it.
pub(crate) struct VegaEngine {
    context: Context,
    deadline: Rc<Cell<Option<Instant>>>,
}

impl VegaEngine {
    /// Loads the library into a new engine.
    pub(crate) fn load() -> Result<VegaEngine, VegaFault> {
        let runtime = Runtime::new().map_err(VegaFault::thrown)?;
        runtime.set_max_stack_size(MOST_STACK);
        let deadline = Rc::new(Cell::new(None::<Instant>));
        let end = Rc::clone(&deadline);
        runtime.set_interrupt_handler(Some(Box::new(move || end.get().is_some_and(|end| Instant::now() >= end))));
        let context = Context::full(&runtime).map_err(VegaFault::thrown)?;
        context.with(|ctx| ctx.eval::<(), _>(LIBRARY).catch(&ctx).map_err(told))?;
        // Set only now: while it creates a context, QuickJS can crash at the limit (quickjs-ng/quickjs#1181).
        runtime.set_memory_limit(MOST_MEMORY);
        Ok(VegaEngine { context, deadline })
    }

    /// Compiles a Vega-Lite specification to a Vega specification.
    pub(crate) fn compile(&self, lite: &str, most: Duration) -> Result<String, VegaFault> {
        self.within(most, |ctx| called::<String>(ctx, "vtaxCompile", lite).catch(ctx).map_err(told))
    }

    /// Draws a Vega-Lite specification as SVG.
    pub(crate) fn draw(&self, lite: &str, most: Duration) -> Result<String, VegaFault> {
        let drawn = |ctx: &Ctx<'_>| {
            let promise = called::<Promise<'_>>(ctx, "vtaxDraw", lite);
            promise.and_then(|promise| promise.finish()).catch(ctx).map_err(told)
        };
        self.within(most, drawn)
    }

    /// Returns the versions of the packages in the library, as JSON.
    #[cfg(test)]
    pub(crate) fn versions(&self) -> String {
        self.context.with(|ctx| ctx.globals().get("vtaxVersions")).expect("the library has them")
    }

    fn within<T>(&self, most: Duration, act: impl FnOnce(&Ctx<'_>) -> Result<T, VegaFault>) -> Result<T, VegaFault> {
        let end = Instant::now() + most;
        self.deadline.set(Some(end));
        let result = self.context.with(|ctx| act(&ctx));
        self.deadline.set(None);
        result.map_err(|fault| if Instant::now() >= end { VegaFault::Late } else { fault })
    }
}

fn called<'js, T: FromJs<'js>>(ctx: &Ctx<'js>, name: &str, lite: &str) -> rquickjs::Result<T> {
    ctx.globals().get::<_, Function<'js>>(name)?.call((lite,))
}

/// Returns the message of an error in one line.
fn told(error: CaughtError<'_>) -> VegaFault {
    let words = match &error {
        CaughtError::Exception(exception) => exception.message().unwrap_or_default(),
        other => other.to_string(),
    };
    VegaFault::Thrown(crate::inert::inert(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_that_takes_too_long_is_stopped() {
        let engine = VegaEngine::load().expect("the library loads");
        let lite = r#"{"data":{"values":[{"a":1}]},"mark":"point"}"#;
        assert!(matches!(engine.draw(lite, Duration::ZERO), Err(VegaFault::Late)));
        assert!(engine.draw(lite, Duration::from_secs(60)).is_ok());
    }

    #[test]
    fn nonsense_is_an_error() {
        let engine = VegaEngine::load().expect("the library loads");
        assert!(matches!(engine.compile("{", Duration::from_secs(60)), Err(VegaFault::Thrown(_))));
    }

    #[test]
    fn memory_has_an_end() {
        let engine = VegaEngine::load().expect("the library loads");
        let greedy = |ctx: &Ctx<'_>| {
            let code = "let a = []; for (;;) a.push({x: a.length, y: [a.length], z: 'z' + a.length})";
            ctx.eval::<(), _>(code).catch(ctx).map_err(told)
        };
        assert!(matches!(engine.within(Duration::from_secs(60), greedy), Err(VegaFault::Thrown(_))));
    }
}
