package kube

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// NewUntyped returns the client for objects of any kind. It is client-go's except for its JSON decoding
// (untyped_json.go): client-go's passes over each object of a watch twelve times, mostly to find its kind before
// decoding it, this one three times, which takes 30 % of the CPU time.
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
