package strategy

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// The API group and the versions of the Rollout documents that are read.
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
	// rolloutID is the caller's number of the release, and idField where it stands.
	rolloutID, idField string
	annotations        Annotations
	// rollbackInBatches is what the annotation says; nil: nothing.
	rollbackInBatches *bool
}

// MetadataKeys are the keys of an object's metadata, as kubectl prints them.
var metadataKeys = []string{"name", "namespace", "annotations", "labels", "creationTimestamp", "deletionGracePeriodSeconds",
	"deletionTimestamp", "finalizers", "generateName", "generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"}

// Metadata reads an object's namespace, name and annotations, and passes over what else an API server keeps there.
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
	return namespace, name, Annotations{field: field.Path(), texts: field.StringMap()}
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
	if m.Optional("status").Present() && !r.object {
		r.Warn(m.Field("status").Path(), "is not looked at: what a rollout is like is read from the cluster")
	}
	spec := m.Optional("spec")
	switch {
	case !spec.Present():
		r.Refuse(spec.Path(), "is required: it holds the workload and the strategy")
	case version == versionAlpha:
		r.specAlpha(&d, spec)
	case version == versionBeta:
		r.specBeta(&d, spec)
	}
	d.annotations = annotations
	r.readAnnotations(&d, annotations)
	return d
}

func (r *Reader) specBeta(d *document, v strictyaml.Value) {
	m := v.Mapping("disabled", "workloadRef", "strategy")
	r.refuseDisabled(m.Optional("disabled"))
	d.ref = r.workloadRef(m.Optional("workloadRef"))
	d.draft = r.strategy(m.Optional("strategy"), false)
}

func (r *Reader) specAlpha(d *document, v strictyaml.Value) {
	m := v.Mapping("disabled", "objectRef", "strategy", "rolloutID")
	r.refuseDisabled(m.Optional("disabled"))
	object := m.Optional("objectRef")
	if object.Present() {
		d.ref = r.workloadRef(object.Mapping("workloadRef").Optional("workloadRef"))
	} else {
		r.Refuse(object.Path(), "is required: name the workload under workloadRef in it")
	}
	if id := m.Optional("rolloutID"); id.Present() {
		d.rolloutID, d.idField = id.FreeText(), id.Path()
	}
	d.draft = r.strategy(m.Optional("strategy"), true)
	if isDeployment(d.ref) && d.body != "" {
		d.Style = StyleCanary
	}
}

func (r *Reader) refuseDisabled(v strictyaml.Value) {
	if v.Truth() && !r.object {
		r.Refuse(v.Path(), "true means to let go of the workload and give all traffic to the stable version: a rollout is not started for "+
			"that; leave it out, or, if the rollout runs, stop it with to: stable")
	}
}

// Annotations are an object's annotations.
type Annotations struct {
	field string
	texts map[string]string
}

func (a Annotations) at(key string) string { return strictyaml.Join(a.field, key) }

// The annotations of a Rollout document that mean something.
const (
	annotationRollingStyle = documentGroup + "rolling-style"
	// annotationRollingType is what the text of the source document calls the one above.
	annotationRollingType  = documentGroup + "rolling-type"
	annotationRouting      = documentGroup + "trafficrouting"
	annotationBatches      = documentGroup + "rollback-in-batch"
	annotationRolloutID    = documentGroup + "rollout-id"
	annotationStrategyHash = documentGroup + "hash"
)

var knownAnnotations = []string{annotationRollingStyle, annotationRollingType, annotationRouting, annotationBatches, annotationRolloutID}

// readAnnotations takes what a document's annotations say. Other products' are passed over; unknown ones of the document's group are refused.
func (r *Reader) readAnnotations(d *document, a Annotations) {
	for _, key := range sortedKeys(a.texts) {
		text := a.texts[key]
		switch key {
		case annotationRollingStyle, annotationRollingType, annotationStrategyHash: // the last is another controller's note to itself
		case annotationRouting:
			if text != "" {
				r.setRoutingRef(&d.draft, a.at(key), text)
			}
		case annotationBatches:
			r.batches(d, a.at(key), text)
		case annotationRolloutID:
			r.setRolloutID(d, a.at(key), text)
		default:
			if strings.HasPrefix(key, documentGroup) && !r.object {
				r.Refuse(a.at(key), "is not an annotation of a Rollout that is known here: those are %s%s", strings.Join(knownAnnotations, ", "),
					strictyaml.DidYouMean(key, knownAnnotations))
			}
		}
	}
	r.rollingStyle(d, a)
}

func (r *Reader) batches(d *document, field, text string) {
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

// rollingStyle takes the style that v1alpha1 has in an annotation. In v1beta1 it is left from a conversion, and has to agree.
func (r *Reader) rollingStyle(d *document, a Annotations) {
	if r.object && !d.legacy {
		return // it says something in the older version of the object alone
	}
	said := ""
	for _, key := range []string{annotationRollingStyle, annotationRollingType} {
		text, there := a.texts[key]
		if !there || text == "" {
			continue
		}
		style := Style(strings.ToLower(text))
		switch {
		case style != StyleCanary && style != StylePartition:
			r.Refuse(a.at(key), "must be canary or partition, not %s", strictyaml.Quote(text))
		case said != "" && said != strings.ToLower(text):
			r.Refuse(a.at(key), "is %s, but %s is %s: keep one", style, annotationRollingStyle, said)
		case d.body != "" && !d.legacy && style != d.Style:
			r.Refuse(a.at(key), "is %s, but the strategy asks for %s: in v1beta1 enableExtraWorkloadForCanary says it, so leave the annotation out",
				style, d.Style)
		case d.legacy && d.body != "":
			d.Style, d.extraField = style, a.at(key)
		}
		said = strings.ToLower(text)
	}
}
