package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	sigsyaml "sigs.k8s.io/yaml"

	"slipway.io/slipway/api/kuscia/convert"
	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/cli/apiclient"
	"slipway.io/slipway/cli/app"
	"slipway.io/slipway/cli/render"
	objects "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/strictyaml"
)

// The kinds of Kuscia objects in a file. KindAppImage is also the word in messages.
const (
	KindServing  = "KusciaDeployment"
	KindAppImage = "AppImage"
)

// KusciaReader reads servings or AppImages.
type KusciaReader struct {
	// Kind is the kind that the files have to contain. Servings may come with AppImages.
	Kind string
	// Updates makes it expect update requests for servings instead of create requests.
	Updates bool
}

// Read reads all documents of all files, AppImages first. If any is invalid, it prints all errors and returns an error.
func (r KusciaReader) Read(a *app.App, files []string) ([]Document, error) {
	documents, findings, err := readDocuments(a, files, r.read)
	if err != nil {
		return nil, err
	}
	isKind := func(d Document) bool { return d.Kind == r.Kind }
	if len(findings) == 0 && !slices.ContainsFunc(documents, isKind) {
		findings = finding(strings.Join(files, ", "), 0, "", "there is no %s", map[string]string{
			KindAppImage: "AppImage in the files",
			KindServing:  "serving in the files: use Kuscia's request, or a KusciaDeployment"}[r.Kind])
	}
	if len(findings) > 0 {
		return nil, RejectDocuments(a, findings, "nothing was sent")
	}
	slices.SortStableFunc(documents, func(a, b Document) int { return strings.Compare(a.Kind, b.Kind) })
	return documents, nil
}

func finding(file string, line int, field, format string, args ...any) []apiclient.Finding {
	return []apiclient.Finding{{File: file,
		Problem: strictyaml.FieldError{Line: line, Field: field, Reason: fmt.Sprintf(format, args...)}}}
}

// read reads one document. A Kuscia request has no kind; an object has one.
func (r KusciaReader) read(file string, text []byte) (Document, []apiclient.Finding) {
	mapping, err := mappingOf(text)
	switch {
	case err != nil:
		return Document{}, finding(file, FirstLine(text), "", "is neither YAML nor JSON: %s",
			render.OneLine(err.Error()))
	case mapping == nil:
		return Document{}, finding(file, FirstLine(text), "", "is not an object: use a Kuscia request or a Kuscia object")
	case !isObject(mapping):
		return r.readRequest(file, text)
	}
	var affinityMode string
	object := &objectReader{file: file, text: text, node: mapping, version: objects.GroupVersion.String(),
		kinds: []string{KindServing, KindAppImage}, accepts: func(field, value string) bool {
			if field == "annotations."+objects.AnnotationAffinityMode {
				affinityMode = value
				return true
			}
			return slices.Contains(knownMetadata, [2]string{field, value}) || field == lastApplied
		}}
	if r.Kind == KindAppImage {
		object.kinds = []string{KindAppImage}
	}
	d := object.read()
	d.AffinityMode = affinityMode
	var wrong strictyaml.Errors
	switch {
	case len(object.findings) > 0:
	case d.Kind == KindAppImage:
		_, wrong = strictyaml.Decode[objects.AppImageSpec](d.Body)
	default:
		_, wrong = strictyaml.Decode[objects.KusciaDeploymentSpec](d.Body)
	}
	return d, append(object.findings, apiclient.FindingsOf(file, wrong)...)
}

// knownMetadata are what every serving of the engine has, and lastApplied is an annotation of kubectl.
var knownMetadata = [][2]string{{"namespace", objects.Namespace},
	{"labels." + objects.LabelAppType, objects.AppTypeServing}}

const lastApplied = "annotations.kubectl.kubernetes.io/last-applied-configuration"

func (r KusciaReader) readRequest(file string, text []byte) (Document, []apiclient.Finding) {
	d := Document{File: file, Kind: r.Kind, Body: text, Request: &kusciapb.CreateServingRequest{}}
	field := "serving_id"
	switch {
	case r.Kind == KindAppImage:
		d.Request, field = &kusciapb.CreateAppImageRequest{}, "name"
	case r.Updates:
		d.Request = &kusciapb.UpdateServingRequest{}
	}
	if err := decodeRequest(text, d.Request); err != nil {
		return d, finding(file, FirstLine(text), "", "%s", err)
	}
	request := d.Request.ProtoReflect()
	d.Name = request.Get(request.Descriptor().Fields().ByName(protoreflect.Name(field))).String()
	if d.Name == "" {
		return d, finding(file, FirstLine(text), field, "is missing")
	}
	var err error
	switch request := d.Request.(type) {
	case convert.AppImageRequest:
		err = convert.SetAppImage(&objects.AppImageSpec{}, request)
	case interface {
		GetParties() []*kusciapb.ServingParty
	}:
		err = convert.CheckParties(request.GetParties())
	}
	if err != nil {
		return d, finding(file, FirstLine(text), "", "%s", err)
	}
	return d, nil
}

// protobufPrefix matches the prefix of protobuf's errors, with a line number that is wrong for a converted YAML file
// and for a second document. Its space is deliberately unstable (a space or U+00A0).
var protobufPrefix = regexp.MustCompile(`^proto:[\s\x{a0}]+(syntax error )?(\(line [0-9:]+\):[\s\x{a0}]*)?`)

// decodeRequest decodes a Kuscia request. It rejects unknown fields, which the engine ignores (as Kuscia does), because
// they are usually typos.
func decodeRequest(text []byte, request proto.Message) error {
	body := bytes.TrimSpace(text)
	if !json.Valid(body) {
		converted, err := sigsyaml.YAMLToJSONStrict(text)
		if err != nil {
			return fmt.Errorf("%s", render.OneLine(err.Error()))
		}
		body = converted
	}
	if err := protojson.Unmarshal(body, request); err != nil {
		return fmt.Errorf("is not a Kuscia %s: %s", request.ProtoReflect().Descriptor().Name(),
			render.OneLine(protobufPrefix.ReplaceAllString(err.Error(), "")))
	}
	return nil
}
