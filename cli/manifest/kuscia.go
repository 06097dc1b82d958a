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
	kindAppImage = "AppImage"
)

// ServingDocument is one serving of a file.
type ServingDocument struct {
	File, ID string
	// Text is the document, for the lines of its fields.
	Text []byte
	// Declared says that it is a KusciaDeployment.
	Declared bool
	// Creation is the whole serving, as a request that creates it; nil in a request to update one, which is Update then.
	Creation *kusciapb.CreateServingRequest
	Update   *kusciapb.UpdateServingRequest

	sent []byte
}

// Body is the request as it is sent: that of the document, or what the document was translated to.
func (d ServingDocument) Body() ([]byte, error) {
	if d.sent != nil {
		return d.sent, nil
	}
	return Body(d.Creation)
}

// Body is a request of Kuscia's API as JSON.
func Body(request proto.Message) ([]byte, error) {
	return (protojson.MarshalOptions{UseProtoNames: true}).Marshal(request)
}

// KusciaReader reads the documents of a command; everything that is wrong with them is found before anything is sent.
type KusciaReader struct {
	// Updates has it take requests that update a serving, where it takes requests that create one otherwise.
	Updates bool
	// ImagesOnly has it take AppImages alone.
	ImagesOnly bool
	// Images are the requests that register the AppImages.
	Images   []*kusciapb.CreateAppImageRequest
	Servings []ServingDocument

	findings []apiclient.Finding
}

// Read reads every document of every file, and prints what is wrong with them.
func (r *KusciaReader) Read(a *app.App, files []string) error {
	for _, file := range files {
		text, shown, err := ReadFile(a, file)
		if err != nil {
			return err
		}
		parts := strictyaml.Split(text)
		if len(parts) == 0 {
			r.refuse(shown, 0, "", "the file holds no document")
		}
		for _, part := range parts {
			r.read(shown, part)
		}
	}
	switch {
	case len(r.findings) > 0:
	case r.ImagesOnly && len(r.Images) == 0:
		r.refuse(strings.Join(files, ", "), 0, "", "there is no %s among the documents", kindAppImage)
	case !r.ImagesOnly && len(r.Servings) == 0:
		r.refuse(strings.Join(files, ", "), 0, "", "there is no serving among the documents: write Kuscia's request, or a %s", kindServing)
	}
	if len(r.findings) > 0 {
		return RefuseDocuments(a, r.findings, "nothing was sent")
	}
	return nil
}

func (r *KusciaReader) refuse(file string, line int, field, format string, args ...any) {
	r.findings = append(r.findings, apiclient.Finding{File: file,
		Wrong: strictyaml.FieldError{Line: line, Field: field, Reason: fmt.Sprintf(format, args...)}})
}

// read takes in one document: Kuscia's request has no kind, an object has.
func (r *KusciaReader) read(file string, text []byte) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		r.refuse(file, FirstLine(text), "", "is neither YAML nor JSON: %s", render.OneLine(err.Error()))
		return
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		r.refuse(file, FirstLine(text), "", "is no object: write Kuscia's request, or one of its objects")
		return
	}
	mapping := root.Content[0]
	version, kind := valueOf(mapping, "apiVersion"), valueOf(mapping, "kind")
	switch {
	case version == nil && kind == nil && r.ImagesOnly:
		r.readImageRequest(file, text)
	case version == nil && kind == nil:
		r.readServingRequest(file, text)
	case version == nil || version.Value != objects.GroupVersion.String():
		r.refuse(file, mapping.Line, "apiVersion", "must be %s", objects.GroupVersion)
	case kind != nil && kind.Value == kindServing && !r.ImagesOnly:
		r.readDeclared(file, text, mapping)
	case kind != nil && kind.Value == kindAppImage:
		r.readImage(file, text)
	case r.ImagesOnly:
		r.refuse(file, mapping.Line, "kind", "must be %s", kindAppImage)
	default:
		r.refuse(file, mapping.Line, "kind", "must be %s or %s", kindServing, kindAppImage)
	}
}

// decodeRequest reads Kuscia's request. What the engine would leave aside, as Kuscia does, is refused: it is a mistake. ok is false
// when it is refused.
func (r *KusciaReader) decodeRequest(file string, text []byte, request proto.Message) (body []byte, ok bool) {
	body = bytes.TrimSpace(text)
	if !json.Valid(body) {
		converted, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			r.refuse(file, FirstLine(text), "", "%s", yamlCause(err))
			return nil, false
		}
		body = converted
	}
	if err := protojson.Unmarshal(body, request); err != nil {
		r.refuse(file, FirstLine(text), "", "is no %s of Kuscia: %s", request.ProtoReflect().Descriptor().Name(), apiclient.ProtoJSONCause(err))
		return nil, false
	}
	return body, true
}

func (r *KusciaReader) readServingRequest(file string, text []byte) {
	d := ServingDocument{File: file, Text: text}
	var ok bool
	if r.Updates {
		d.Update = &kusciapb.UpdateServingRequest{}
		d.sent, ok = r.decodeRequest(file, text, d.Update)
		d.ID = d.Update.GetServingId()
	} else {
		d.Creation = &kusciapb.CreateServingRequest{}
		d.sent, ok = r.decodeRequest(file, text, d.Creation)
		d.ID = d.Creation.GetServingId()
	}
	switch {
	case !ok:
	case d.ID == "":
		r.refuse(file, FirstLine(text), "serving_id", "is missing")
	default:
		r.Servings = append(r.Servings, d)
	}
}

func (r *KusciaReader) readImageRequest(file string, text []byte) {
	request := &kusciapb.CreateAppImageRequest{}
	switch _, ok := r.decodeRequest(file, text, request); {
	case !ok:
	case request.GetName() == "":
		r.refuse(file, FirstLine(text), "name", "is missing")
	default:
		r.Images = append(r.Images, request)
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

func (r *KusciaReader) readDeclared(file string, text []byte, mapping *yaml.Node) {
	if wrong := unexpressible(file, mapping); len(wrong) > 0 {
		r.findings = append(r.findings, wrong...)
		return
	}
	kd := &objects.KusciaDeployment{}
	if err := sigsyaml.UnmarshalStrict(text, kd); err != nil {
		r.refuse(file, FirstLine(text), "", "is no %s: %s", kindServing, yamlCause(err))
		return
	}
	at := func(field string) int { return lineOf(mapping, field) }
	if kd.Name == "" {
		r.refuse(file, at("metadata"), "metadata.name", "is missing")
	}
	if kd.Namespace != "" && kd.Namespace != objects.Namespace {
		r.refuse(file, at("metadata.namespace"), "metadata.namespace",
			"cannot be chosen over the API, which keeps servings in the engine's own namespace: remove it, or use kubectl")
	}
	if kind, there := kd.Labels[objects.LabelAppType]; there && kind != objects.AppTypeServing {
		r.refuse(file, at("metadata.labels"), "metadata.labels."+objects.LabelAppType,
			"must be %s over the API: correct it, or use kubectl", objects.AppTypeServing)
	}
	if len(r.findings) > 0 {
		return
	}
	r.Servings = append(r.Servings, ServingDocument{File: file, ID: kd.Name, Text: text, Declared: true, Creation: creationOf(kd)})
}

// readImage takes in an AppImage. One that says more than a request can is refused: another one would be registered.
func (r *KusciaReader) readImage(file string, text []byte) {
	image := &objects.AppImage{}
	if err := sigsyaml.UnmarshalStrict(text, image); err != nil {
		r.refuse(file, FirstLine(text), "", "is no %s: %s", kindAppImage, yamlCause(err))
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
		r.refuse(file, fieldLine(text, field), field,
			"cannot be said in Kuscia's request for an AppImage: register it with kubectl apply, and leave it out here")
	}
	if len(lost) == 0 {
		r.Images = append(r.Images, request)
	}
}

func fieldLine(text []byte, field string) int {
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return FirstLine(text)
	}
	return lineOf(root.Content[0], field)
}
