//! A whole request, rendered.

use std::fmt;

use crate::domain::contract::{HttpCall, HttpRequest, Method, Policy};
use crate::domain::json::Json;
use crate::domain::pointer::Pointer;

use super::{
    BodyTemplate, Placeholder, RenderContext, SecretRef, Secrets, TemplateError, TemplateProblem,
    TextTemplate, UrlTemplate,
};

/// A request as it goes on the wire. `Debug` shows no value: they are payload and secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct RenderedRequest {
    /// The method.
    pub method: Method,
    /// The absolute address.
    pub url: String,
    /// Header fields; with a body, a `content-type` is always among them.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Vec<u8>>,
}

impl fmt::Debug for RenderedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("RenderedRequest")
            .field("method", &self.method)
            .field("headers", &names)
            .field("body_bytes", &self.body.as_ref().map(Vec::len))
            .finish_non_exhaustive()
    }
}

/// The parts of a request that hold placeholders.
struct Parts<'a> {
    method: Method,
    url: &'a UrlTemplate,
    headers: &'a [(String, TextTemplate)],
    body: Option<&'a BodyTemplate>,
}

impl HttpRequest {
    /// Builds the request of one attempt.
    ///
    /// # Errors
    /// When it cannot be built from these values; nothing was sent.
    pub fn render(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<RenderedRequest, TemplateError> {
        self.parts().render(context, secrets)
    }

    /// Whether these arguments can ever become a request, so that a submission is refused early
    /// instead of failing at its first attempt. Says nothing about secrets.
    ///
    /// # Errors
    /// When no attempt could build its request.
    pub fn check_buildable(&self, arguments: &Json) -> Result<(), TemplateError> {
        self.parts().check_buildable(arguments)
    }

    /// Every placeholder of the request.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&Placeholder> {
        self.parts().placeholders()
    }

    /// The places of the arguments that the request is made of; sorted, each once.
    #[must_use]
    pub fn argument_pointers(&self) -> Vec<&Pointer> {
        let mut pointers: Vec<&Pointer> =
            self.placeholders().into_iter().filter_map(Placeholder::argument).collect();
        pointers.sort_unstable();
        pointers.dedup();
        pointers
    }

    /// The secrets that the request needs; sorted, each once.
    #[must_use]
    pub fn secrets(&self) -> Vec<&SecretRef> {
        self.parts().secrets()
    }

    fn parts(&self) -> Parts<'_> {
        let Self { method, url, headers, body, .. } = self;
        Parts { method: *method, url, headers, body: body.as_ref() }
    }
}

impl HttpCall {
    /// Builds the request. Nothing of it drops out: a filter that is left away asks for more than
    /// this operation, and another's effect would be taken for its own.
    ///
    /// # Errors
    /// When it cannot be built whole from these values; nothing was sent.
    pub fn render(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<RenderedRequest, TemplateError> {
        self.parts().require_whole(context)?;
        self.parts().render(context, secrets)
    }

    /// Every placeholder of the request.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&Placeholder> {
        self.parts().placeholders()
    }

    /// The secrets that the request needs; sorted, each once.
    #[must_use]
    pub fn secrets(&self) -> Vec<&SecretRef> {
        self.parts().secrets()
    }

    fn parts(&self) -> Parts<'_> {
        let Self { method, url, headers, body, .. } = self;
        Parts { method: *method, url, headers, body: body.as_ref() }
    }
}

impl Policy {
    /// Builds the request around `body`, a JSON text. Nothing of it drops out.
    ///
    /// # Errors
    /// When it cannot be built whole from these values; nothing was sent.
    pub fn render(
        &self,
        body: String,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<RenderedRequest, TemplateError> {
        self.parts().require_whole(context)?;
        let mut rendered = self.parts().render(context, secrets)?;
        rendered.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
        rendered.headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        rendered.body = Some(body.into_bytes());
        Ok(rendered)
    }

    /// Every placeholder of the request.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&Placeholder> {
        self.parts().placeholders()
    }

    /// The secrets that the request needs; sorted, each once.
    #[must_use]
    pub fn secrets(&self) -> Vec<&SecretRef> {
        self.parts().secrets()
    }

    fn parts(&self) -> Parts<'_> {
        let Self { url, headers, .. } = self;
        Parts { method: Method::Post, url, headers, body: None }
    }
}

impl Placeholder {
    /// The place in the arguments, for a placeholder that names one.
    #[must_use]
    pub fn argument(&self) -> Option<&Pointer> {
        match self {
            Self::Argument(pointer) => Some(pointer),
            Self::IdempotencyKey
            | Self::OperationId
            | Self::Tenant
            | Self::Environment
            | Self::Job
            | Self::Receipt => None,
        }
    }
}

impl<'a> Parts<'a> {
    fn render(
        &self,
        context: &RenderContext<'_>,
        secrets: Secrets<'_>,
    ) -> Result<RenderedRequest, TemplateError> {
        let at = |place: &str| {
            let place = place.to_owned();
            move |problem| TemplateError { place, problem }
        };
        let url = self.url.render(context, secrets).map_err(at("url"))?;
        let mut headers = Vec::with_capacity(self.headers.len() + 1);
        for (name, value) in self.headers {
            let value =
                value.render_header(context, secrets).map_err(at(&format!("header {name}")))?;
            headers.extend(value.map(|value| (name.clone(), value)));
        }
        let body = self.body.map(|body| body.render(context).map_err(at("body"))).transpose()?;
        let typed = headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type"));
        if body.is_some() && !typed {
            headers.push(("Content-Type".to_owned(), "application/json".to_owned()));
        }
        let body = body.map(String::into_bytes);
        Ok(RenderedRequest { method: self.method, url, headers, body })
    }

    /// Whether every argument that the request names is there, and says something where it narrows
    /// an address: many services take an empty filter for none.
    fn require_whole(&self, context: &RenderContext<'_>) -> Result<(), TemplateError> {
        let value = |placeholder: &Placeholder| {
            placeholder.argument().map(|pointer| context.arguments.at(pointer))
        };
        let of_url = |p: &&Placeholder| match value(p) {
            Some(None) => true,
            Some(Some(found)) => found.as_str().is_some_and(str::is_empty),
            None => false,
        };
        let missing = |place: &str, placeholder: &Placeholder| TemplateError {
            place: place.to_owned(),
            problem: TemplateProblem::Missing(placeholder.clone()),
        };
        if let Some(placeholder) = self.url.placeholders().find(of_url) {
            return Err(missing("url", placeholder));
        }
        match self.placeholders().into_iter().find(|p| matches!(value(p), Some(None))) {
            Some(placeholder) => Err(missing("the question", placeholder)),
            None => Ok(()),
        }
    }

    fn check_buildable(&self, arguments: &Json) -> Result<(), TemplateError> {
        let context = RenderContext {
            arguments,
            idempotency_key: Some("key"),
            operation_id: "id",
            tenant: "tenant",
            environment: "environment",
            job: Some("job"),
            receipt: Some("receipt"),
        };
        // Secrets are the deployment's matter; this one can stand wherever a secret can.
        match self.render(&context, &|_| Some("http://secret".to_owned())) {
            Err(error) if error.problem.is_of_the_arguments() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    fn placeholders(&self) -> Vec<&'a Placeholder> {
        let headers = self.headers.iter().flat_map(|(_, value)| value.placeholders());
        let body = self.body.into_iter().flat_map(BodyTemplate::placeholders);
        self.url.placeholders().chain(headers).chain(body).collect()
    }

    fn secrets(&self) -> Vec<&'a SecretRef> {
        let headers = self.headers.iter().flat_map(|(_, value)| value.secrets());
        let mut secrets: Vec<&SecretRef> = self.url.secrets().chain(headers).collect();
        secrets.sort_unstable();
        secrets.dedup();
        secrets
    }
}
