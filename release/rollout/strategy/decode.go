package strategy

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

type (
	// FieldError is a problem with one field of a document.
	FieldError = strictyaml.FieldError
	// Errors are all problems of a document, in line order.
	Errors = strictyaml.Errors
)

// Reader reads the parts that rollout documents have in common, and collects their problems.
type Reader struct {
	found    *strictyaml.Findings
	warnings []string
	// stored means that the document is an object which the API server has accepted: what other controllers of its kind
	// ignore causes a warning, not an error.
	stored bool
}

// NewReader returns a Reader that adds to the findings of one document.
func NewReader(found *strictyaml.Findings) *Reader { return newReader(found, false) }

func newReader(found *strictyaml.Findings, stored bool) *Reader {
	found.NameForeign(foreign)
	return &Reader{found: found, stored: stored}
}

// Refuse records a broken rule. It ignores a field that could not be read, since that error is already recorded.
func (r *Reader) Refuse(field, format string, args ...any) { r.found.Refuse(0, field, format, args...) }

// refuseUnlessStored refuses what a client must not send; for an object that is already stored it only warns.
func (r *Reader) refuseUnlessStored(field, format string, args ...any) {
	if r.stored {
		r.Warn(field, fmt.Sprintf(format, args...))
		return
	}
	r.Refuse(field, format, args...)
}

// Warn records what is legal but probably not intended.
func (r *Reader) Warn(field, reason string) {
	if !r.found.Unreadable(field) {
		r.warnings = append(r.warnings, FieldError{Field: field, Line: r.found.Line(field), Reason: reason}.Error())
	}
}

// Warnings returns all warnings, each a sentence with its field and line.
func (r *Reader) Warnings() []string { return r.warnings }

// Name refuses a name that is absent or that breaks the given Kubernetes naming rule.
func (r *Reader) Name(field, name string, rule func(string) []string) {
	if name == "" {
		r.Refuse(field, "is required")
		return
	}
	if problems := rule(name); len(problems) > 0 {
		r.Refuse(field, "%s is not a legal name: %s", strictyaml.Quote(name), strings.Join(problems, "; "))
	}
}

// name reads a name and refuses one that is absent or illegal.
func (r *Reader) name(m strictyaml.Mapping, key string, rule func(string) []string) string {
	name := m.Optional(key).Text()
	r.Name(m.Field(key).Path(), name, rule)
	return name
}

// required reads a text and refuses an absent one.
func (r *Reader) required(m strictyaml.Mapping, key, reason string) string {
	text := m.Optional(key).Text()
	if text == "" {
		r.Refuse(m.Field(key).Path(), "is required%s", reason)
	}
	return text
}

// listOf reads a list of at most `most` entries, each with read.
func listOf[T any](r *Reader, v strictyaml.Value, most int, what string,
	read func(i int, entry strictyaml.Value) T) []T {
	entries := v.List()
	if len(entries) > most {
		r.Refuse(v.Path(), "has %d %s, of at most %d", len(entries), what, most)
	}
	var all []T
	for i, entry := range entries {
		all = append(all, read(i, entry))
	}
	return all
}

// oneOf reads a value of an enumeration; "" if it is absent or unknown.
func oneOf[T ~string](v strictyaml.Value, words ...T) T {
	text := T(v.Text())
	if text == "" || slices.Contains(words, text) {
		return text
	}
	v.CannotRead("must be one of %s, not %s%s", strictyaml.List(words), strictyaml.Quote(string(text)),
		strictyaml.DidYouMean(string(text), words))
	return ""
}

// readEnum and readSeconds overwrite a default if the field is present.
func readEnum[T ~string](v strictyaml.Value, to *T, words ...T) {
	if v.Present() {
		*to = oneOf(v, words...)
	}
}

func readSeconds(v strictyaml.Value, to *int64, least, most int64) {
	if v.Present() {
		*to = v.Seconds(least, most)
	}
}

// The API group and the supported versions of Rollout documents.
const (
	documentGroup = "rollouts.kruise.io/"
	versionBeta   = documentGroup + "v1beta1"
	versionAlpha  = documentGroup + "v1alpha1"
	documentKind  = "Rollout"
)

type document struct {
	draft
	namespace, name string
	ref             catalog.WorkloadRef
	// rolloutID is the caller's own ID of the release; idField is the path of the field that sets it.
	rolloutID, idField string
	annotations        Annotations
	// rollbackInBatches is the value of the annotation; nil if absent.
	rollbackInBatches *bool
}

// metadataKeys are the keys of an object's metadata, as kubectl prints them.
var metadataKeys = []string{"name", "namespace", "annotations", "labels", "creationTimestamp",
	"deletionGracePeriodSeconds", "deletionTimestamp", "finalizers", "generateName", "generation", "managedFields",
	"ownerReferences", "resourceVersion", "selfLink", "uid"}

// Metadata reads an object's namespace, name and annotations, and ignores the other fields that the API server keeps
// there.
func (r *Reader) Metadata(v strictyaml.Value) (namespace, name string, annotations Annotations) {
	m := v.Mapping(metadataKeys...)
	namespace, name = m.Optional("namespace").Text(), m.Optional("name").Text()
	if namespace != "" {
		r.Name(m.Field("namespace").Path(), namespace, validation.IsDNS1123Label)
	}
	if name != "" {
		r.Name(m.Field("name").Path(), name, validation.IsDNS1123Subdomain)
	}
	field := m.Optional("annotations")
	return namespace, name, Annotations{field: field.Path(), values: field.StringMap()}
}

func (r *Reader) document(v strictyaml.Value) document {
	m := v.Mapping("apiVersion", "kind", "metadata", "spec", "status")
	version := oneOf(m.Optional("apiVersion"), versionBeta, versionAlpha)
	if version == "" {
		r.Refuse(m.Field("apiVersion").Path(), "is required: write %s or %s", versionBeta, versionAlpha)
	}
	if oneOf(m.Optional("kind"), documentKind) == "" {
		r.Refuse(m.Field("kind").Path(), "is required: write %s", documentKind)
	}
	var d document
	var annotations Annotations
	d.namespace, d.name, annotations = r.Metadata(m.Optional("metadata"))
	if m.Optional("status").Present() && !r.stored {
		r.Warn(m.Field("status").Path(), "is ignored: the state of a rollout is read from the cluster")
	}
	spec := m.Optional("spec")
	if !spec.Present() {
		r.Refuse(spec.Path(), "is required: it holds the workload and the strategy")
	} else if version != "" {
		r.spec(&d, spec, version == versionAlpha)
	}
	d.annotations = annotations
	r.readAnnotations(&d, annotations)
	return d
}

func (r *Reader) spec(d *document, v strictyaml.Value, legacy bool) {
	keys := []string{"disabled", "workloadRef", "strategy"}
	if legacy {
		keys = []string{"disabled", "objectRef", "strategy", "rolloutID"}
	}
	m := v.Mapping(keys...)
	if disabled := m.Optional("disabled"); disabled.Bool() && !r.stored {
		r.Refuse(disabled.Path(), "true means to release the workload and send all traffic to the stable version, "+
			"which starts no rollout: leave it out, or, if the rollout is running, stop it with to: stable")
	}
	switch object := m.Optional("objectRef"); {
	case !legacy:
		d.ref = r.workloadRef(m.Optional("workloadRef"))
	case object.Present():
		d.ref = r.workloadRef(object.Mapping("workloadRef").Optional("workloadRef"))
	default:
		r.Refuse(object.Path(), "is required: name the workload under workloadRef in it")
	}
	if id := m.Optional("rolloutID"); id.Present() {
		d.rolloutID, d.idField = id.FreeText(), id.Path()
	}
	d.draft = r.strategy(m.Optional("strategy"), legacy)
	if legacy && kindOf(d.ref).Supports(StyleCanary) && d.body != "" {
		d.Style = StyleCanary
	}
}

// Annotations are an object's annotations.
type Annotations struct {
	field  string
	values map[string]string
}

func (a Annotations) path(key string) string { return strictyaml.Join(a.field, key) }

// The annotations of a Rollout document that have a meaning.
const (
	annotationRollingStyle = documentGroup + "rolling-style"
	// annotationRollingType is the name that the text of the API specification uses for annotationRollingStyle.
	annotationRollingType  = documentGroup + "rolling-type"
	annotationRouting      = documentGroup + "trafficrouting"
	annotationBatches      = documentGroup + "rollback-in-batch"
	annotationRolloutID    = documentGroup + "rollout-id"
	annotationStrategyHash = documentGroup + "hash"
)

var knownAnnotations = []string{annotationRollingStyle, annotationRollingType, annotationRouting, annotationBatches,
	annotationRolloutID}

// readAnnotations applies a document's annotations. It ignores those of other products, and refuses unknown ones of the
// document's group.
func (r *Reader) readAnnotations(d *document, a Annotations) {
	for _, key := range sortedKeys(a.values) {
		text := a.values[key]
		switch key {
		// the hash is for internal use by another controller
		case annotationRollingStyle, annotationRollingType, annotationStrategyHash:
		case annotationRouting:
			r.setRoutingRef(&d.draft, a.path(key), text)
		case annotationBatches:
			r.rollbackInBatches(d, a.path(key), text)
		case annotationRolloutID:
			r.setRolloutID(d, a.path(key), text)
		default:
			if strings.HasPrefix(key, documentGroup) && !r.stored {
				r.Refuse(a.path(key), "is not a known annotation of a Rollout: known are %s%s",
					strings.Join(knownAnnotations, ", "), strictyaml.DidYouMean(key, knownAnnotations))
			}
		}
	}
	r.rollingStyle(d, a)
}

func (r *Reader) rollbackInBatches(d *document, field, text string) {
	if text == "true" || text == "false" {
		d.rollbackInBatches = new(text == "true")
	} else {
		r.Refuse(field, `must be "true" or "false", not %s`, strictyaml.Quote(text))
	}
}

func (r *Reader) setRolloutID(d *document, field, id string) {
	if d.rolloutID != "" && id != "" && id != d.rolloutID {
		r.Refuse(field, "is %s, but %s is %s: keep one", strictyaml.Quote(id), d.idField, strictyaml.Quote(d.rolloutID))
		return
	}
	if id != "" {
		d.rolloutID, d.idField = id, field
	}
}

// rollingStyle applies the style that v1alpha1 has in an annotation. In v1beta1 the annotation is left over from a
// conversion and has to agree.
func (r *Reader) rollingStyle(d *document, a Annotations) {
	if r.stored && !d.legacy {
		return // it has a meaning in v1alpha1 only
	}
	previous := Style("")
	for _, key := range []string{annotationRollingStyle, annotationRollingType} {
		style := Style(strings.ToLower(a.values[key]))
		switch {
		case style == "":
			continue
		case style != StyleCanary && style != StylePartition:
			r.Refuse(a.path(key), "must be canary or partition, not %s", strictyaml.Quote(a.values[key]))
		case previous != "" && previous != style:
			r.Refuse(a.path(key), "is %s, but %s is %s: keep one", style, annotationRollingStyle, previous)
		case d.body != "" && !d.legacy && style != d.Style:
			r.Refuse(a.path(key), "is %s, but the strategy asks for %s: v1beta1 uses enableExtraWorkloadForCanary "+
				"instead, so leave the annotation out", style, d.Style)
		case d.legacy && d.body != "":
			d.Style, d.extraField = style, a.path(key)
		}
		previous = style
	}
}

// AnnotationPolicy is the annotation of a Rollout object that holds its policy, as YAML or JSON, with the keys of
// policy in a start request.
const AnnotationPolicy = "slipway.io/policy"

// DecodeObject reads a Rollout object of either version from the cluster, as JSON. The API server has accepted it, so
// what other controllers of the kind ignore causes warnings, not errors. The Spec has no change. spec.disabled and
// spec.strategy.paused are commands of their own; the strategy keeps the second.
func DecodeObject(object []byte) (Spec, []string, Errors) {
	root, found, ok := strictyaml.Parse(object)
	if !ok {
		return Spec{}, nil, found.Sorted()
	}
	r := newReader(found, true)
	d := r.document(root)
	r.check(&d.draft, d.ref)
	policy, wrong := r.objectPolicy(&d)
	if len(wrong) > 0 {
		return Spec{}, nil, wrong
	}
	return Spec{Party: catalog.DefaultParty, Namespace: d.namespace, Name: d.name, WorkloadRef: d.ref,
		Strategy: d.Strategy, Policy: policy, RolloutID: d.rolloutID}, r.Warnings(), found.Sorted()
}

// objectPolicy reads the policy of an object from its annotation. The fields of its errors begin with the annotation's
// path.
func (r *Reader) objectPolicy(d *document) (Policy, Errors) {
	field := strictyaml.Join("metadata.annotations", AnnotationPolicy)
	text := d.annotations.values[AnnotationPolicy]
	if text == "" {
		text = "{}"
	}
	inner, found, ok := strictyaml.Parse([]byte(text))
	var policy Policy
	if ok {
		policy = newReader(found, true).policyOf(d, inner)
	}
	wrong := found.Sorted()
	for i := range wrong {
		wrong[i].Field, wrong[i].Line = strictyaml.Join(field, wrong[i].Field), 0
	}
	return policy, wrong
}
