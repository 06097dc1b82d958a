package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	sigsyaml "sigs.k8s.io/yaml"

	"slipway.io/slipway/api/kuscia"
	"slipway.io/slipway/api/kuscia/kusciapb"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

// The kinds of Kuscia's objects that a file may hold.
const (
	kindServing  = "KusciaDeployment"
	kindAppImage = "AppImage"
)

// servingFile is what the files of a command hold.
type servingFile struct {
	// images are the requests that register the AppImages.
	images   []*kusciapb.CreateAppImageRequest
	servings []servingDocument
}

// servingDocument is one serving of a file.
type servingDocument struct {
	file string
	id   string
	// body is Kuscia's request as JSON.
	body []byte
	// declared is the KusciaDeployment that the request was made of, and its text; nil for a request.
	declared *objects.KusciaDeployment
	text     []byte
}

// servingRequest is a request of Kuscia's API that declares a serving, or changes one.
type servingRequest interface {
	proto.Message
	GetServingId() string
}

// documentReader reads the documents of a command; everything that is wrong with them is found before anything is sent.
type documentReader struct {
	// readRequest takes in a request of Kuscia's, of the kind that the command takes.
	readRequest func(file string, text []byte)
	// translate makes the request of a KusciaDeployment; nil for a command that takes none.
	translate func(*objects.KusciaDeployment) servingRequest
	found     servingFile
	findings  []finding
}

// readServings reads files that hold servings, and AppImages for them.
func (a *app) readServings(files []string, r *documentReader) error {
	if err := a.readInto(files, r); err != nil {
		return err
	}
	if len(r.findings) == 0 && len(r.found.servings) == 0 {
		r.refuse(strings.Join(files, ", "), 0, "", "there is no serving among the documents: write Kuscia's request, or a %s", kindServing)
	}
	if len(r.findings) > 0 {
		return a.refuseDocuments(r.findings, "nothing was sent")
	}
	return nil
}

// readInto reads every document of every file.
func (a *app) readInto(files []string, r *documentReader) error {
	for _, file := range files {
		text, shown, err := a.readFile(file)
		if err != nil {
			return err
		}
		parts := splitDocuments(text)
		if len(parts) == 0 {
			r.refuse(shown, 0, "", "the file holds no document")
		}
		for _, part := range parts {
			r.read(shown, part)
		}
	}
	return nil
}

func (r *documentReader) refuse(file string, line int, field, format string, args ...any) {
	r.findings = append(r.findings, finding{file: file, wrong: strictyaml.FieldError{Line: line, Field: field, Reason: fmt.Sprintf(format, args...)}})
}

// read takes in one document: Kuscia's request has no kind, an object has.
func (r *documentReader) read(file string, text []byte) {
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		r.refuse(file, firstLine(text), "", "is neither YAML nor JSON: %s", oneLine(err.Error()))
		return
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		r.refuse(file, firstLine(text), "", "is no object: write Kuscia's request, or one of its objects")
		return
	}
	mapping := root.Content[0]
	version, kind := valueOf(mapping, "apiVersion"), valueOf(mapping, "kind")
	switch {
	case version == nil && kind == nil:
		r.readRequest(file, text)
	case version == nil || version.Value != objects.GroupVersion.String():
		r.refuse(file, mapping.Line, "apiVersion", "must be %s", objects.GroupVersion)
	case kind != nil && kind.Value == kindServing && r.translate != nil:
		r.readDeclared(file, text, mapping)
	case kind != nil && kind.Value == kindAppImage:
		r.readImage(file, text)
	case r.translate == nil:
		r.refuse(file, mapping.Line, "kind", "must be %s", kindAppImage)
	default:
		r.refuse(file, mapping.Line, "kind", "must be %s or %s", kindServing, kindAppImage)
	}
}

// decodeRequest reads Kuscia's request. What the engine would leave aside, as Kuscia does, is refused: it is a mistake. ok is false when it is refused.
func (r *documentReader) decodeRequest(file string, text []byte, request proto.Message) (body []byte, ok bool) {
	body = bytes.TrimSpace(text)
	if !json.Valid(body) {
		converted, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			r.refuse(file, firstLine(text), "", "%s", yamlCause(err))
			return nil, false
		}
		body = converted
	}
	if err := protojson.Unmarshal(body, request); err != nil {
		r.refuse(file, firstLine(text), "", "is no %s of Kuscia: %s", request.ProtoReflect().Descriptor().Name(), protojsonCause(err))
		return nil, false
	}
	return body, true
}

// readServingRequest takes in a request that makes or changes a serving.
func (r *documentReader) readServingRequest(file string, text []byte, request servingRequest) {
	body, ok := r.decodeRequest(file, text, request)
	switch {
	case !ok:
	case request.GetServingId() == "":
		r.refuse(file, firstLine(text), "serving_id", "is missing")
	default:
		r.found.servings = append(r.found.servings, servingDocument{file: file, id: request.GetServingId(), body: body})
	}
}

// readImageRequest takes in a request that registers an AppImage.
func (r *documentReader) readImageRequest(file string, text []byte) {
	request := &kusciapb.CreateAppImageRequest{}
	_, ok := r.decodeRequest(file, text, request)
	switch {
	case !ok:
	case request.GetName() == "":
		r.refuse(file, firstLine(text), "name", "is missing")
	default:
		r.found.images = append(r.found.images, request)
	}
}

// protobufPrefix is what protobuf's errors begin with, a blank that varies included.
var protobufPrefix = regexp.MustCompile(`^proto:\s+(syntax error )?(\(line [0-9:]+\):\s*)?`)

// protojsonCause is what is wrong with a message. Lines are left out: they are not those of a file that was YAML, or whose document is not the first.
func protojsonCause(err error) string {
	return oneLine(protobufPrefix.ReplaceAllString(strings.ReplaceAll(err.Error(), "\u00a0", " "), ""))
}

// yamlCause is what is wrong with an object, without the steps on which it was found.
func yamlCause(err error) string {
	text := err.Error()
	for _, step := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "json: "} {
		text = strings.TrimPrefix(text, step)
	}
	return oneLine(text)
}

// readDeclared takes in a KusciaDeployment.
func (r *documentReader) readDeclared(file string, text []byte, mapping *yaml.Node) {
	if wrong := unexpressible(file, mapping); len(wrong) > 0 {
		r.findings = append(r.findings, wrong...)
		return
	}
	kd := &objects.KusciaDeployment{}
	if err := sigsyaml.UnmarshalStrict(text, kd); err != nil {
		r.refuse(file, firstLine(text), "", "is no %s: %s", kindServing, yamlCause(err))
		return
	}
	at := func(field string) int { return lineOf(mapping, field) }
	if kd.Name == "" {
		r.refuse(file, at("metadata"), "metadata.name", "is missing")
	}
	if kd.Namespace != "" && kd.Namespace != objects.Namespace {
		r.refuse(file, at("metadata.namespace"), "metadata.namespace", "cannot be chosen over the API, which keeps servings in the engine's own namespace: remove it, or use kubectl")
	}
	if kind, there := kd.Labels[objects.LabelAppType]; there && kind != objects.AppTypeServing {
		r.refuse(file, at("metadata.labels"), "metadata.labels."+objects.LabelAppType, "must be %s over the API: correct it, or use kubectl", objects.AppTypeServing)
	}
	if len(r.findings) > 0 {
		return
	}
	body, err := (protojson.MarshalOptions{UseProtoNames: true}).Marshal(r.translate(kd))
	if err != nil {
		r.refuse(file, firstLine(text), "", "%s", oneLine(err.Error()))
		return
	}
	r.found.servings = append(r.found.servings, servingDocument{file: file, id: kd.Name, body: body, declared: kd, text: text})
}

// readImage takes in an AppImage. One that says more than a request can is refused: another one would be registered.
func (r *documentReader) readImage(file string, text []byte) {
	image := &objects.AppImage{}
	if err := sigsyaml.UnmarshalStrict(text, image); err != nil {
		r.refuse(file, firstLine(text), "", "is no %s: %s", kindAppImage, yamlCause(err))
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
		r.refuse(file, fieldLine(text, field), field, "cannot be said in Kuscia's request for an AppImage: register it with kubectl apply, and leave it out here")
	}
	if len(lost) == 0 {
		r.found.images = append(r.found.images, request)
	}
}

// fieldLine is the line of a field of a document.
func fieldLine(text []byte, field string) int {
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return firstLine(text)
	}
	return lineOf(root.Content[0], field)
}
