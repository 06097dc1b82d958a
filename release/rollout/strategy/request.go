package strategy

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// Request is the body of a start: the release that is asked for, by whom and why.
type Request struct {
	// Spec is the release. Its namespace is "" when nobody says it: the caller fills in the party's own.
	Spec Spec
	// Supersede has it take the place of a rollout of the same name that still runs.
	Supersede bool
	Actor     string
	Reason    string
	// Key is the idempotency key.
	Key string
	// Warnings are sentences on what is legal but probably not meant.
	Warnings []string
}

// The longest texts of a request, in characters.
const (
	maxActorLength     = 200
	maxReasonLength    = 2000
	maxKeyLength       = 255
	maxRolloutIDLength = 255
	maxImageLength     = 1024
)

var requestKeys = []string{"party", "namespace", "name", "workloadRef", "strategy", "policy", "rollout", "images", "templatePatch",
	"rolloutId", "supersede", "actor", "reason", "key"}

// DecodeRequest reads the body of POST /api/v1/rollouts from YAML or JSON, strictly: every error at once, each with its field and line.
// Defaults are filled in. The Request means nothing when there are errors.
func DecodeRequest(body []byte) (Request, Errors) {
	root, found, ok := strictyaml.Parse(body)
	if !ok {
		return Request{}, found.Sorted()
	}
	r := NewReader(found)
	if root.Has("kind") && root.Has("spec") {
		r.Refuse("", "is a document by itself: put it under the key rollout, beside images or templatePatch, which say what changes")
		return Request{}, found.Sorted()
	}
	request := r.request(root)
	request.Warnings = r.Warnings()
	return request, found.Sorted()
}

func (r *Reader) request(root strictyaml.Value) Request {
	m := root.Mapping(requestKeys...)
	if r.found.Unreadable("") {
		return Request{}
	}
	request := Request{
		Supersede: m.Field("supersede").Truth(),
		Actor:     r.bounded(m.Field("actor"), maxActorLength), Reason: r.bounded(m.Field("reason"),
			maxReasonLength), Key: r.bounded(m.Field("key"), maxKeyLength),
	}
	d := r.subject(m)
	request.Spec = Spec{Namespace: d.namespace, Name: d.name, WorkloadRef: d.ref, Party: r.party(m.Field("party")), Change: r.change(m)}
	if id := m.Field("rolloutId"); id.Present() {
		r.setRolloutID(&d, id.Path(), id.Name())
	}
	if utf8.RuneCountInString(d.rolloutID) > maxRolloutIDLength {
		r.Refuse(d.idField, "is too long: it has at most %d characters", maxRolloutIDLength)
	}
	request.Spec.RolloutID = d.rolloutID
	d.deployment = isDeployment(d.ref)
	r.check(&d.draft)
	r.checkStyle(&d.draft, d.ref)
	request.Spec.Policy = r.policyOf(&d, m.Field("policy"))
	request.Spec.Strategy = d.Strategy
	return request
}

// subject reads what is released and how: from a whole Rollout document, or from the body's own fields.
func (r *Reader) subject(m strictyaml.Mapping) document {
	var d document
	if field := m.Field("rollout"); field.Present() {
		for _, key := range []string{"workloadRef", "strategy"} {
			if m.Field(key).Present() {
				r.Refuse(key, "is said by the document under rollout: keep one of them")
			}
		}
		d = r.document(field)
	} else {
		d.ref = r.workloadRef(m.Field("workloadRef"))
		d.draft = r.strategy(m.Field("strategy"), false)
	}
	d.namespace = r.either(m.Field("namespace"), d.namespace, validation.IsDNS1123Label)
	d.name = r.either(m.Field("name"), d.name, validation.IsDNS1123Subdomain)
	if d.name == "" {
		d.name = d.ref.Name
	}
	return d
}

// either is the name that the body's field or the document says; both may, if they agree.
func (r *Reader) either(v strictyaml.Value, document string, rule func(string) []string) string {
	if !v.Present() {
		return document
	}
	name := v.Text()
	if name != "" {
		r.Name(v.Path(), name, rule)
	}
	if document != "" && name != "" && name != document {
		r.Refuse(v.Path(), "is %s, but the document under rollout says %s: keep one", strictyaml.Quote(name), strictyaml.Quote(document))
	}
	return name
}

func (r *Reader) party(v strictyaml.Value) string {
	if !v.Present() {
		return catalog.DefaultParty
	}
	party := v.Text()
	if party != "" {
		if err := catalog.ValidParty(party); err != nil {
			r.Refuse(v.Path(), "%s", err)
		}
	}
	return party
}

func (r *Reader) change(m strictyaml.Mapping) Change {
	images, patch := m.Field("images"), m.Field("templatePatch")
	switch {
	case images.Present() && patch.Present():
		r.Refuse("templatePatch", "is there beside images: keep one of them; a patch can set images too")
	case !images.Present() && !patch.Present():
		r.Refuse("images", "is required: say by container which image the new version has, or give a templatePatch")
	}
	return Change{Images: r.images(images), TemplatePatch: r.templatePatch(patch)}
}

func (r *Reader) images(v strictyaml.Value) map[string]string {
	images := v.StringMap()
	if v.Present() && len(images) == 0 {
		r.Refuse(v.Path(), "names no container: say by container which image the new version has")
	}
	for _, container := range sortedKeys(images) {
		field, image := strictyaml.Join(v.Path(), container), images[container]
		r.Name(field, container, validation.IsDNS1123Label)
		switch {
		case image == "":
			r.Refuse(field, "has no image")
		case len(image) > maxImageLength || strings.ContainsFunc(image, func(c rune) bool { return unicode.IsSpace(c) || unicode.IsControl(c) }):
			r.Refuse(field, "%s is not the name of an image: it has no blanks and at most %d characters", strictyaml.Quote(image), maxImageLength)
		}
	}
	return images
}

// templatePatch reads a patch of a pod template, which has metadata and spec.
func (r *Reader) templatePatch(v strictyaml.Value) json.RawMessage {
	if !v.Present() {
		return nil
	}
	raw := v.Object()
	if raw == nil {
		return nil
	}
	var parts map[string]json.RawMessage
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) == 0 {
		r.Refuse(v.Path(), "changes nothing: it is merged into the pod template, under metadata and spec")
		return nil
	}
	for _, key := range sortedKeys(parts) {
		if key != "metadata" && key != "spec" && !strings.HasPrefix(key, "$") {
			r.Refuse(strictyaml.Join(v.Path(), key), "is not part of a pod template, which has metadata and spec: give the patch of the template "+
				"alone")
		}
	}
	if len(raw) > MaxTemplatePatch {
		r.Refuse(v.Path(), "is too large: %d bytes, of at most %d", len(raw), MaxTemplatePatch)
	}
	return raw
}

// bounded reads a text that people write for people.
func (r *Reader) bounded(v strictyaml.Value, most int) string {
	text := v.FreeText()
	if n := utf8.RuneCountInString(text); n > most {
		r.Refuse(v.Path(), "is too long: %d characters, of at most %d", n, most)
	}
	return text
}

// sortedKeys come in one order, whatever the map's is.
//
//workflowcheck:ignore
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
