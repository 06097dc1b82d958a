package kube

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewUntyped returns the client for objects of any kind. It is client-go's except for its JSON decoding: client-go's
// passes over each object of a watch twelve times, mostly to find its kind before decoding it, this one three times,
// which takes 30 % of the CPU time.
func NewUntyped(config *rest.Config) (dynamic.Interface, error) {
	config = dynamic.ConfigFor(config)
	config.NegotiatedSerializer = untypedSerializers{config.NegotiatedSerializer}
	config.GroupVersion, config.APIPath = nil, "/absolute-paths-only"
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, err
	}
	return dynamic.New(client), nil
}

// untypedSerializers are client-go's, with faster decoders for JSON.
type untypedSerializers struct{ runtime.NegotiatedSerializer }

// SupportedMediaTypes implements runtime.NegotiatedSerializer.
func (s untypedSerializers) SupportedMediaTypes() []runtime.SerializerInfo {
	types := s.NegotiatedSerializer.SupportedMediaTypes()
	short := make([]runtime.SerializerInfo, len(types))
	for i, info := range types {
		if info.MediaType == runtime.ContentTypeJSON {
			stream := *info.StreamSerializer
			info.Serializer, stream.Serializer = untypedSerializer{info.Serializer}, eventSerializer{stream.Serializer}
			stream.Framer = eventFramer{stream.Framer}
			info.StreamSerializer = &stream
		}
		short[i] = info
	}
	return short
}

// untypedSerializer decodes an object first and reads its kind afterwards. Anything but an object of a cluster is left
// to client-go's decoder.
type untypedSerializer struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s untypedSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	out := into
	if into == nil {
		out = &unstructured.Unstructured{}
	}
	var err error
	switch out := out.(type) {
	case *unstructured.Unstructured:
		out.Object, err = readObject(data)
	case *unstructured.UnstructuredList:
		err = decodeList(data, out)
	default:
		err = errOther
	}
	kind := out.GetObjectKind().GroupVersionKind()
	if err != nil || kind.Kind == "" || kind.Version == "" || into == nil && kind.Kind == statusKind {
		return s.Serializer.Decode(data, defaults, into)
	}
	return out, &kind, nil
}

// statusKind is the kind of an API server's answer without an object: clients recognise it by its type.
const statusKind = "Status"

// decodeList decodes a list. As in client-go, items without a kind (of built-in kinds) get it from the list's.
func decodeList(data []byte, into *unstructured.UnstructuredList) error {
	list, err := readObject(data)
	items, is := list["items"].([]any)
	if err != nil || !is && list["items"] != nil {
		return errOther
	}
	delete(list, "items")
	into.Object, into.Items = list, make([]unstructured.Unstructured, 0, len(items))
	version, kind := into.GetAPIVersion(), strings.TrimSuffix(into.GetKind(), "List")
	for _, item := range items {
		object, is := item.(map[string]any)
		if !is {
			return errOther
		}
		one := unstructured.Unstructured{Object: object}
		if one.GetKind() == "" && one.GetAPIVersion() == "" {
			one.SetKind(kind)
			one.SetAPIVersion(version)
		}
		into.Items = append(into.Items, one)
	}
	return nil
}

// eventSerializer decodes the events of a watch, which all have one kind.
type eventSerializer struct{ runtime.Serializer }

// Decode implements runtime.Decoder.
func (s eventSerializer) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object,
	*schema.GroupVersionKind, error) {
	event, is := into.(*metav1.WatchEvent)
	read, err := readEvent(data)
	if !is || err != nil {
		return s.Serializer.Decode(data, defaults, into)
	}
	*event = read
	return event, &eventKind, nil
}

var eventKind = schema.GroupVersionKind{Version: "v1", Kind: "WatchEvent"}

// errOther means that the text is left to client-go's decoder, which handles it or reports what is wrong.
var errOther = errors.New("no JSON object that is read in one pass")

// lastWins makes the last of two fields with one name count, as in client-go's decoder.
var lastWins = jsontext.AllowDuplicateNames(true)

// readObject decodes an object in one pass, its numbers as in client-go: int64 if they are whole and fit, float64
// otherwise. The decoder that client-go uses, sigs.k8s.io/json, takes half as long again.
func readObject(data []byte) (map[string]any, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), lastWins)
	value, err := readValue(d)
	if err != nil {
		return nil, err
	}
	object, is := value.(map[string]any)
	if _, err := d.ReadToken(); !is || !errors.Is(err, io.EOF) {
		return nil, errOther
	}
	return object, nil
}

func readValue(d *jsontext.Decoder) (any, error) {
	token, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch token.Kind() {
	case '{':
		fields := map[string]any{}
		for d.PeekKind() != '}' {
			token, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			name := token.String() // before the next token is read
			if fields[name], err = readValue(d); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return fields, err
	case '[':
		items := []any{}
		for d.PeekKind() != ']' {
			item, err := readValue(d)
			if err != nil {
				return nil, err
			}
			items = append(items, item)
		}
		_, err := d.ReadToken()
		return items, err
	case '"':
		return token.String(), nil
	case 'n':
		return nil, nil
	case 't', 'f':
		return token.Bool(), nil
	}
	text := token.String()
	if !strings.Contains(text, ".") {
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n, nil
		}
	}
	return strconv.ParseFloat(text, 64)
}

// readEvent decodes an event of a watch. Its object is a slice of data.
func readEvent(data []byte) (event metav1.WatchEvent, err error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data), lastWins)
	if token, err := d.ReadToken(); err != nil || token.Kind() != '{' {
		return event, errOther
	}
	for d.PeekKind() != '}' {
		token, err := d.ReadToken()
		if err != nil {
			return event, err
		}
		name := token.String()
		value, err := d.ReadValue()
		if err != nil {
			return event, err
		}
		switch {
		case name == "type" && value.Kind() == '"':
			text, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return event, err
			}
			event.Type = string(text)
		case name == "object" && value.Kind() == '{':
			end := d.InputOffset()
			event.Object.Raw = data[end-int64(len(value)) : end]
		default:
			return event, errOther
		}
	}
	_, err = d.ReadToken()
	return event, err
}

// eventFramer splits the stream of a watch into events.
type eventFramer struct{ runtime.Framer }

// NewFrameReader implements runtime.Framer.
func (f eventFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &events{ReadCloser: r, framer: f.Framer,
		decoder: jsontext.NewDecoder(r, lastWins, jsontext.AllowInvalidUTF8(true))}
}

// events reads the events of a watch one by one.
type events struct {
	io.ReadCloser
	framer  runtime.Framer
	decoder *jsontext.Decoder
	// remaining is the part of the current event that was not returned yet.
	remaining []byte
	// fallback reads the rest of the stream after something that is no event: client-go's reader reports what is wrong.
	fallback io.Reader
}

// Read returns an event, or as much of it as fits, then with io.ErrShortBuffer.
func (e *events) Read(room []byte) (int, error) {
	if e.fallback == nil && len(e.remaining) == 0 {
		var err error
		if e.remaining, err = e.decoder.ReadValue(); err != nil {
			unread := bytes.NewReader(slices.Clone(e.decoder.UnreadBuffer()))
			e.fallback = e.framer.NewFrameReader(io.NopCloser(io.MultiReader(unread, e.ReadCloser)))
		}
	}
	if e.fallback != nil {
		return e.fallback.Read(room)
	}
	n := copy(room, e.remaining)
	if e.remaining = e.remaining[n:]; len(e.remaining) > 0 {
		return n, io.ErrShortBuffer
	}
	return n, nil
}
