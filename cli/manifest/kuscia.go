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

// The kinds of Kuscia objects in a file.
const (
	kindServing  = "KusciaDeployment"
	kindAppImage = "AppImage"
)

// ServingDocument is one serving of a file.
type ServingDocument struct {
	File, ID string
	// Text is the document, used to find the lines of fields.
	Text []byte
	// IsObject is true for a KusciaDeployment object.
	IsObject bool
	// Create is the request that creates the complete serving. For an update request it is nil, and Update is set.
	Create *kusciapb.CreateServingRequest
	Update *kusciapb.UpdateServingRequest

	request []byte
}

// Body returns the JSON request: the document itself, or its translation.
func (d ServingDocument) Body() ([]byte, error) {
	if d.request != nil {
		return d.request, nil
	}
	return Body(d.Create)
}

// Body encodes a request of Kuscia's API as JSON.
func Body(request proto.Message) ([]byte, error) {
	return (protojson.MarshalOptions{UseProtoNames: true}).Marshal(request)
}

// KusciaReader reads the documents of a command. It reports all errors before anything is sent.
type KusciaReader struct {
	// Updates makes it expect update requests instead of create requests.
	Updates bool
	// ImagesOnly makes it accept only AppImages.
	ImagesOnly bool
	// Images are the requests that create the AppImages.
	Images   []*kusciapb.CreateAppImageRequest
	Servings []ServingDocument

	findings []apiclient.Finding
}

// Read reads all documents of all files and prints their errors.
func (r *KusciaReader) Read(a *app.App, files []string) error {
	for _, file := range files {
		text, shown, err := ReadFile(a, file)
		if err != nil {
			return err
		}
		parts := strictyaml.Split(text)
		if len(parts) == 0 {
			r.reject(shown, 0, "", "the file is empty")
		}
		for _, part := range parts {
			r.read(shown, part)
		}
	}
	switch {
	case len(r.findings) > 0:
	case r.ImagesOnly && len(r.Images) == 0:
		r.reject(strings.Join(files, ", "), 0, "", "there is no %s in the files", kindAppImage)
	case !r.ImagesOnly && len(r.Servings) == 0:
		r.reject(strings.Join(files, ", "), 0, "", "there is no serving in the files: use Kuscia's request, or a %s",
			kindServing)
	}
	if len(r.findings) > 0 {
		return RejectDocuments(a, r.findings, "nothing was sent")
	}
	return nil
}

func (r *KusciaReader) reject(file string, line int, field, format string, args ...any) {
	r.findings = append(r.findings, apiclient.Finding{File: file,
		Problem: strictyaml.FieldError{Line: line, Field: field, Reason: fmt.Sprintf(format, args...)}})
}

// read reads one document. A Kuscia request has no kind; an object has one.
func (r *KusciaReader) read(file string, text []byte) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		r.reject(file, FirstLine(text), "", "is neither YAML nor JSON: %s", render.OneLine(err.Error()))
		return
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		r.reject(file, FirstLine(text), "", "is not an object: use a Kuscia request or a Kuscia object")
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
		r.reject(file, mapping.Line, "apiVersion", "must be %s", objects.GroupVersion)
	case kind != nil && kind.Value == kindServing && !r.ImagesOnly:
		r.readKusciaDeployment(file, text, mapping)
	case kind != nil && kind.Value == kindAppImage:
		r.readImage(file, text)
	case r.ImagesOnly:
		r.reject(file, mapping.Line, "kind", "must be %s", kindAppImage)
	default:
		r.reject(file, mapping.Line, "kind", "must be %s or %s", kindServing, kindAppImage)
	}
}

// decodeRequest decodes a Kuscia request. It rejects unknown fields, which the engine ignores (as Kuscia does), because
// they are usually typos.
func (r *KusciaReader) decodeRequest(file string, text []byte, request proto.Message) (body []byte, ok bool) {
	body = bytes.TrimSpace(text)
	if !json.Valid(body) {
		converted, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			r.reject(file, FirstLine(text), "", "%s", yamlCause(err))
			return nil, false
		}
		body = converted
	}
	if err := protojson.Unmarshal(body, request); err != nil {
		r.reject(file, FirstLine(text), "", "is not a Kuscia %s: %s", request.ProtoReflect().Descriptor().Name(),
			apiclient.ProtoJSONCause(err))
		return nil, false
	}
	return body, true
}

func (r *KusciaReader) readServingRequest(file string, text []byte) {
	d := ServingDocument{File: file, Text: text}
	var ok bool
	if r.Updates {
		d.Update = &kusciapb.UpdateServingRequest{}
		d.request, ok = r.decodeRequest(file, text, d.Update)
		d.ID = d.Update.GetServingId()
	} else {
		d.Create = &kusciapb.CreateServingRequest{}
		d.request, ok = r.decodeRequest(file, text, d.Create)
		d.ID = d.Create.GetServingId()
	}
	switch {
	case !ok:
	case d.ID == "":
		r.reject(file, FirstLine(text), "serving_id", "is missing")
	default:
		r.Servings = append(r.Servings, d)
	}
}

func (r *KusciaReader) readImageRequest(file string, text []byte) {
	request := &kusciapb.CreateAppImageRequest{}
	switch _, ok := r.decodeRequest(file, text, request); {
	case !ok:
	case request.GetName() == "":
		r.reject(file, FirstLine(text), "name", "is missing")
	default:
		r.Images = append(r.Images, request)
	}
}

// yamlCause removes the prefixes of the decoders from an error.
func yamlCause(err error) string {
	text := err.Error()
	for _, step := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, step)
	}
	return render.OneLine(text)
}

func (r *KusciaReader) readKusciaDeployment(file string, text []byte, mapping *yaml.Node) {
	if wrong := unsupportedFields(file, mapping); len(wrong) > 0 {
		r.findings = append(r.findings, wrong...)
		return
	}
	kd := &objects.KusciaDeployment{}
	if err := sigsyaml.UnmarshalStrict(text, kd); err != nil {
		r.reject(file, FirstLine(text), "", "is not a valid %s: %s", kindServing, yamlCause(err))
		return
	}
	at := func(field string) int { return lineOf(mapping, field) }
	if kd.Name == "" {
		r.reject(file, at("metadata"), "metadata.name", "is missing")
	}
	if kd.Namespace != "" && kd.Namespace != objects.Namespace {
		r.reject(file, at("metadata.namespace"), "metadata.namespace",
			"cannot be set through the API, which stores servings in the engine's namespace: remove it, or use kubectl")
	}
	if kind, there := kd.Labels[objects.LabelAppType]; there && kind != objects.AppTypeServing {
		r.reject(file, at("metadata.labels"), "metadata.labels."+objects.LabelAppType,
			"must be %s: correct it, or use kubectl", objects.AppTypeServing)
	}
	if len(r.findings) > 0 {
		return
	}
	r.Servings = append(r.Servings, ServingDocument{File: file, ID: kd.Name, Text: text, IsObject: true,
		Create: createRequest(kd)})
}

// readImage reads an AppImage. It rejects fields that Kuscia's request does not have, because they would be lost.
func (r *KusciaReader) readImage(file string, text []byte) {
	image := &objects.AppImage{}
	if err := sigsyaml.UnmarshalStrict(text, image); err != nil {
		r.reject(file, FirstLine(text), "", "is not a valid %s: %s", kindAppImage, yamlCause(err))
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
		r.reject(file, fieldLine(text, field), field,
			"is not supported by Kuscia's request for an AppImage: apply this AppImage with kubectl instead")
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
