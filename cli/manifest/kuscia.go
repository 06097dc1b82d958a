package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	sigsyaml "sigs.k8s.io/yaml"

	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

// The kinds of Kuscia's objects that a file may hold.
const (
	kindServing  = "KusciaDeployment"
	KindAppImage = "AppImage"
)

// KusciaDocuments is what the files of a command hold.
type KusciaDocuments struct {
	// Images are the requests that register the AppImages.
	Images   []*kusciapb.CreateAppImageRequest
	Servings []ServingDocument
}

// ServingDocument is one serving of a file.
type ServingDocument struct {
	File string
	ID   string
	// Body is Kuscia's request as JSON.
	Body []byte
	// Declared is the KusciaDeployment that the request was made of, and its text; nil for a request.
	Declared *objects.KusciaDeployment
	Text     []byte
}

// ServingRequest is a request of Kuscia's API that declares a serving, or changes one.
type ServingRequest interface {
	proto.Message
	GetServingId() string
}

// KusciaReader reads the documents of a command; everything that is wrong with them is found before anything is sent.
type KusciaReader struct {
	// ReadRequest takes in a request of Kuscia's, of the kind that the command takes.
	ReadRequest func(file string, text []byte)
	// Translate makes the request of a KusciaDeployment; nil for a command that takes none.
	Translate func(*objects.KusciaDeployment) ServingRequest
	Found     KusciaDocuments
	Findings  []apiclient.Finding
}

// ReadServings reads files that hold servings, and AppImages for them.
func ReadServings(a *app.App, files []string, r *KusciaReader) error {
	if err := ReadInto(a, files, r); err != nil {
		return err
	}
	if len(r.Findings) == 0 && len(r.Found.Servings) == 0 {
		r.Refuse(strings.Join(files, ", "), 0, "", "there is no serving among the documents: write Kuscia's request, or a %s", kindServing)
	}
	if len(r.Findings) > 0 {
		return RefuseDocuments(a, r.Findings, "nothing was sent")
	}
	return nil
}

// ReadInto reads every document of every file.
func ReadInto(a *app.App, files []string, r *KusciaReader) error {
	for _, file := range files {
		text, shown, err := ReadFile(a, file)
		if err != nil {
			return err
		}
		parts := SplitDocuments(text)
		if len(parts) == 0 {
			r.Refuse(shown, 0, "", "the file holds no document")
		}
		for _, part := range parts {
			r.read(shown, part)
		}
	}
	return nil
}

// Refuse notes what is wrong with a field.
func (r *KusciaReader) Refuse(file string, line int, field, format string, args ...any) {
	r.Findings = append(r.Findings, apiclient.Finding{File: file, Wrong: strictyaml.FieldError{Line: line, Field: field, Reason: fmt.Sprintf(format, args...)}})
}

// read takes in one document: Kuscia's request has no kind, an object has.
func (r *KusciaReader) read(file string, text []byte) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		r.Refuse(file, FirstLine(text), "", "is neither YAML nor JSON: %s", render.OneLine(err.Error()))
		return
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		r.Refuse(file, FirstLine(text), "", "is no object: write Kuscia's request, or one of its objects")
		return
	}
	mapping := root.Content[0]
	version, kind := valueOf(mapping, "apiVersion"), valueOf(mapping, "kind")
	switch {
	case version == nil && kind == nil:
		r.ReadRequest(file, text)
	case version == nil || version.Value != objects.GroupVersion.String():
		r.Refuse(file, mapping.Line, "apiVersion", "must be %s", objects.GroupVersion)
	case kind != nil && kind.Value == kindServing && r.Translate != nil:
		r.readDeclared(file, text, mapping)
	case kind != nil && kind.Value == KindAppImage:
		r.readImage(file, text)
	case r.Translate == nil:
		r.Refuse(file, mapping.Line, "kind", "must be %s", KindAppImage)
	default:
		r.Refuse(file, mapping.Line, "kind", "must be %s or %s", kindServing, KindAppImage)
	}
}

// decodeRequest reads Kuscia's request. What the engine would leave aside, as Kuscia does, is refused: it is a mistake. ok is false when it is refused.
func (r *KusciaReader) decodeRequest(file string, text []byte, request proto.Message) (body []byte, ok bool) {
	body = bytes.TrimSpace(text)
	if !json.Valid(body) {
		converted, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			r.Refuse(file, FirstLine(text), "", "%s", yamlCause(err))
			return nil, false
		}
		body = converted
	}
	if err := protojson.Unmarshal(body, request); err != nil {
		r.Refuse(file, FirstLine(text), "", "is no %s of Kuscia: %s", request.ProtoReflect().Descriptor().Name(), apiclient.ProtoJSONCause(err))
		return nil, false
	}
	return body, true
}

// ReadServingRequest takes in a request that makes or changes a serving.
func (r *KusciaReader) ReadServingRequest(file string, text []byte, request ServingRequest) {
	body, ok := r.decodeRequest(file, text, request)
	switch {
	case !ok:
	case request.GetServingId() == "":
		r.Refuse(file, FirstLine(text), "serving_id", "is missing")
	default:
		r.Found.Servings = append(r.Found.Servings, ServingDocument{File: file, ID: request.GetServingId(), Body: body})
	}
}

// ReadImageRequest takes in a request that registers an AppImage.
func (r *KusciaReader) ReadImageRequest(file string, text []byte) {
	request := &kusciapb.CreateAppImageRequest{}
	_, ok := r.decodeRequest(file, text, request)
	switch {
	case !ok:
	case request.GetName() == "":
		r.Refuse(file, FirstLine(text), "name", "is missing")
	default:
		r.Found.Images = append(r.Found.Images, request)
	}
}

// yamlCause is what is wrong with an object, without the steps on which it was found.
func yamlCause(err error) string {
	text := err.Error()
	for _, step := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, step)
	}
	return render.OneLine(text)
}

// readDeclared takes in a KusciaDeployment.
func (r *KusciaReader) readDeclared(file string, text []byte, mapping *yaml.Node) {
	if wrong := unexpressible(file, mapping); len(wrong) > 0 {
		r.Findings = append(r.Findings, wrong...)
		return
	}
	kd := &objects.KusciaDeployment{}
	if err := sigsyaml.UnmarshalStrict(text, kd); err != nil {
		r.Refuse(file, FirstLine(text), "", "is no %s: %s", kindServing, yamlCause(err))
		return
	}
	at := func(field string) int { return lineOf(mapping, field) }
	if kd.Name == "" {
		r.Refuse(file, at("metadata"), "metadata.name", "is missing")
	}
	if kd.Namespace != "" && kd.Namespace != objects.Namespace {
		r.Refuse(file, at("metadata.namespace"), "metadata.namespace", "cannot be chosen over the API, which keeps servings in the engine's own namespace: remove it, or use kubectl")
	}
	if kind, there := kd.Labels[objects.LabelAppType]; there && kind != objects.AppTypeServing {
		r.Refuse(file, at("metadata.labels"), "metadata.labels."+objects.LabelAppType, "must be %s over the API: correct it, or use kubectl", objects.AppTypeServing)
	}
	if len(r.Findings) > 0 {
		return
	}
	body, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(r.Translate(kd))
	if err != nil {
		r.Refuse(file, FirstLine(text), "", "%s", render.OneLine(err.Error()))
		return
	}
	r.Found.Servings = append(r.Found.Servings, ServingDocument{File: file, ID: kd.Name, Body: body, Declared: kd, Text: text})
}

// readImage takes in an AppImage. One that says more than a request can is refused: another one would be registered.
func (r *KusciaReader) readImage(file string, text []byte) {
	image := &objects.AppImage{}
	if err := sigsyaml.UnmarshalStrict(text, image); err != nil {
		r.Refuse(file, FirstLine(text), "", "is no %s: %s", KindAppImage, yamlCause(err))
		return
	}
	request, lost := kuscia.AppImageRequest(image)
	if len(image.Labels) > 0 {
		lost = append(lost, "metadata.labels")
	}
	if len(image.Annotations) > 0 {
		lost = append(lost, "metadata.annotations")
	}
	for _, field := range lost {
		r.Refuse(file, FieldLine(text, field), field, "cannot be said in Kuscia's request for an AppImage: register it with kubectl apply, and leave it out here")
	}
	if len(lost) == 0 {
		r.Found.Images = append(r.Found.Images, request)
	}
}

// FieldLine is the line of a field of a document.
func FieldLine(text []byte, field string) int {
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return FirstLine(text)
	}
	return lineOf(root.Content[0], field)
}
