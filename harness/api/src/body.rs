//! What a request or an answer holds: bytes, or an object that becomes bytes when somebody wants them.
//!
//! Over a socket it is bytes. In memory, where the object that one side made is what the other side reads, writing and reading JSON
//! would be most of the work of a run in virtual time.

use std::any::Any;
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use serde::Serialize;
use serde::de::DeserializeOwned;

type Object = Arc<dyn Any + Send + Sync>;

/// How an object becomes bytes.
type Write = Box<dyn Fn(&Object) -> Vec<u8> + Send + Sync>;

/// A body. Copies share what it holds.
#[derive(Clone, Default)]
pub struct Body(Option<Arc<Held>>);

struct Held {
    bytes: OnceLock<Vec<u8>>,
    object: Option<(Object, Write)>,
}

impl Body {
    /// An object that is written as JSON.
    pub fn object<T: Serialize + Any + Send + Sync>(object: T) -> Self {
        // Wire types are plain data with string keys: serialising them cannot fail.
        Self::object_as(object, |object| serde_json::to_vec(object).unwrap_or_default())
    }

    /// An object that is written in that way.
    pub fn object_as<T: Any + Send + Sync>(object: T, write: fn(&T) -> Vec<u8>) -> Self {
        let write = move |object: &Object| object.downcast_ref::<T>().map(write).unwrap_or_default();
        let object: Object = Arc::new(object);
        Self(Some(Arc::new(Held { bytes: OnceLock::new(), object: Some((object, Box::new(write))) })))
    }

    /// The object, where it was made of one of that type.
    pub fn as_object<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.object.as_ref()?.0.downcast_ref()
    }

    /// Its bytes.
    pub fn as_slice(&self) -> &[u8] {
        let Some(held) = &self.0 else { return &[] };
        held.bytes.get_or_init(|| held.object.as_ref().map(|(object, write)| write(object)).unwrap_or_default())
    }

    /// Its bytes; they are copied only when somebody else has the body, too.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0.map(Arc::try_unwrap) {
            None => Vec::new(),
            Some(Ok(Held { bytes, object })) => {
                bytes.into_inner().unwrap_or_else(|| object.map(|(object, write)| write(&object)).unwrap_or_default())
            }
            Some(Err(shared)) => Self(Some(shared)).as_slice().to_vec(),
        }
    }

    /// What it holds, as an object of that type.
    ///
    /// # Errors
    /// When the bytes are not JSON of that shape.
    pub fn read<T: DeserializeOwned + Clone + Any + Send + Sync>(self) -> Result<T, serde_json::Error> {
        if self.as_object::<T>().is_none() {
            return serde_json::from_slice(&self);
        }
        let object = self.0.map(Arc::try_unwrap).map(|held| match held {
            Ok(held) => held.object.map(|(object, _)| object),
            Err(shared) => shared.object.as_ref().map(|(object, _)| object.clone()),
        });
        match object.flatten().map(Arc::downcast::<T>) {
            Some(Ok(object)) => Ok(Arc::try_unwrap(object).unwrap_or_else(|shared| (*shared).clone())),
            _ => serde_json::from_slice(&[]),
        }
    }

    /// Is there nothing in it? An object is something.
    pub fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|held| held.object.is_none() && held.bytes.get().is_none_or(Vec::is_empty))
    }
}

impl Deref for Body {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.as_slice()
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        Self(Some(Arc::new(Held { bytes: OnceLock::from(bytes), object: None })))
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&str> for Body {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(self))
    }
}

impl Eq for Body {}

/// Bodies are the same when their bytes are.
impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for Body {
    fn eq(&self, other: &T) -> bool {
        self.as_slice() == other.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_read_as_it_is_and_as_what_it_is_written() {
        let body = Body::object(vec![1_u32, 2]);
        assert_eq!(body.as_object::<Vec<u32>>(), Some(&vec![1, 2]));
        assert_eq!(body.as_object::<String>(), None);
        assert_eq!(&*body, b"[1,2]");
        assert!(!body.is_empty());
        assert_eq!(body.clone().read::<Vec<u32>>().unwrap(), [1, 2]);
        assert_eq!(body.clone().read::<Vec<u64>>().unwrap(), [1, 2], "of another type by way of JSON");
        assert!(body.clone().read::<String>().is_err());
        assert_eq!(body, Body::from("[1,2]"));
        assert_eq!(body.into_vec(), b"[1,2]");
        let odd = Body::object_as(7_u8, |n| vec![*n]);
        assert_eq!(odd.into_vec(), [7]);
    }

    #[test]
    fn nothing_is_empty() {
        assert!(Body::default().is_empty());
        assert_eq!(Body::from(Vec::new()), Body::default());
        assert_eq!(Body::default().into_vec(), Vec::<u8>::new());
        assert!(!Body::from("x").is_empty());
    }
}
