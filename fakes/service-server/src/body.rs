//! Bodies that are read while they are sent: at most two chunks are in memory, whatever the size of the image and however slow
//! the client.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use vlab_image_service::layout::{BaseFile, Layout};
use vlab_image_service::service::ImageResponse;

/// Bytes that are read at once.
const CHUNK: u64 = 256 * 1024;

/// The body of an answer of the image service.
#[derive(Debug)]
pub(crate) struct ImageBody {
    layout: Arc<Layout>,
    base: Option<Arc<BaseFile>>,
    /// Next byte to hand out.
    at: u64,
    /// The chunk that comes next.
    reading: Option<JoinHandle<io::Result<Bytes>>>,
    /// Given back with the last byte.
    permit: Option<OwnedSemaphorePermit>,
}

impl ImageBody {
    /// The body of an answer; `permit` is held until it is sent.
    pub(crate) fn new(answer: ImageResponse, permit: Option<OwnedSemaphorePermit>) -> Self {
        let ImageResponse { reply, base } = answer;
        Self { layout: Arc::new(reply.body), base, at: 0, reading: None, permit }
    }

    /// Begins to read a chunk, unless the body ends there.
    fn read(&self, from: u64) -> Option<JoinHandle<io::Result<Bytes>>> {
        let len = CHUNK.min(self.layout.len().saturating_sub(from));
        if len == 0 {
            return None;
        }
        let (layout, base) = (self.layout.clone(), self.base.clone());
        Some(tokio::task::spawn_blocking(move || {
            let mut chunk = vec![0; len as usize];
            match base {
                Some(base) => layout.read_exact_at(&*base, from, &mut chunk)?,
                None => layout.read_exact_at([].as_slice(), from, &mut chunk)?,
            }
            Ok(Bytes::from(chunk))
        }))
    }
}

impl Body for ImageBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.reading.is_none() {
            self.reading = self.read(self.at);
        }
        let Some(reading) = &mut self.reading else {
            self.permit = None;
            return Poll::Ready(None);
        };
        let chunk = match ready!(Pin::new(reading).poll(cx)) {
            Ok(chunk) => chunk,
            Err(gone) => Err(io::Error::other(gone)),
        };
        self.reading = None;
        let chunk = chunk.inspect_err(|error| tracing::warn!(%error, "an image cannot be read any further"))?;
        self.at += chunk.len() as u64;
        // The next one is read while this one is sent.
        self.reading = self.read(self.at);
        Poll::Ready(Some(Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.at >= self.layout.len()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.layout.len().saturating_sub(self.at))
    }
}
