package strategy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// Request is the body of a start request: the release, its actor and the reason.
type Request struct {
	// Spec is the release. Its namespace is "" if the request sets none: the caller fills in the party's namespace.
	Spec Spec
	// Supersede makes the release replace a running rollout of the same name.
	Supersede bool
	Actor     string
	Reason    string
	// Key is the idempotency key.
	Key string
	// Warnings are sentences on what is legal but probably not intended.
	Warnings []string
}

// The maximum lengths of a request's texts, in characters.
const (
	maxActorLength     = 200
	maxReasonLength    = 2000
	maxKeyLength       = 255
	maxRolloutIDLength = 255
	maxImageLength     = 1024
)

var requestKeys = []string{"party", "namespace", "name", "workloadRef", "strategy", "policy", "rollout", "images",
	"templatePatch", "rolloutId", "supersede", "actor", "reason", "key"}

// DecodeRequest reads the body of POST /api/v1/rollouts from YAML or JSON, strictly: it returns every error at once,
// each with its field and line, and fills in defaults. If there are errors, the Request is meaningless.
func DecodeRequest(body []byte) (Request, Errors) {
	root, found, ok := strictyaml.Parse(body)
	if !ok {
		return Request{}, found.Sorted()
	}
	r := NewReader(found)
	if root.Has("kind") && root.Has("spec") {
		r.Refuse("", "is a bare Rollout document: put it under the key rollout, next to images or templatePatch, "+
			"which define the change")
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
		Supersede: m.Field("supersede").Bool(),
		Actor:     r.boundedText(m.Field("actor"), maxActorLength), Reason: r.boundedText(m.Field("reason"),
			maxReasonLength), Key: r.boundedText(m.Field("key"), maxKeyLength),
	}
	d := r.subject(m)
	request.Spec = Spec{Namespace: d.namespace, Name: d.name, WorkloadRef: d.ref, Party: r.party(m.Field("party")),
		Change: r.change(m)}
	if id := m.Field("rolloutId"); id.Present() {
		r.setRolloutID(&d, id.Path(), id.Name())
	}
	if utf8.RuneCountInString(d.rolloutID) > maxRolloutIDLength {
		r.Refuse(d.idField, "is too long: it has at most %d characters", maxRolloutIDLength)
	}
	request.Spec.RolloutID = d.rolloutID
	r.check(&d.draft, d.ref)
	request.Spec.Policy = r.policyOf(&d, m.Field("policy"))
	request.Spec.Strategy = d.Strategy
	return request
}

// subject reads the workload and its strategy: from a complete Rollout document, or from the body's own fields.
func (r *Reader) subject(m strictyaml.Mapping) document {
	var d document
	if field := m.Field("rollout"); field.Present() {
		for _, key := range []string{"workloadRef", "strategy"} {
			if m.Field(key).Present() {
				r.Refuse(key, "is already set by the document under rollout: keep one of them")
			}
		}
		d = r.document(field)
	} else {
		d.ref = r.workloadRef(m.Field("workloadRef"))
		d.draft = r.strategy(m.Field("strategy"), false)
	}
	d.namespace = r.agreedName(m.Field("namespace"), d.namespace, validation.IsDNS1123Label)
	d.name = r.agreedName(m.Field("name"), d.name, validation.IsDNS1123Subdomain)
	if d.name == "" {
		d.name = d.ref.Name
	}
	return d
}

// agreedName returns the name that the body's field or the document sets. Both may set it if they agree.
func (r *Reader) agreedName(v strictyaml.Value, document string, rule func(string) []string) string {
	if !v.Present() {
		return document
	}
	name := v.Text()
	if name != "" {
		r.Name(v.Path(), name, rule)
	}
	if document != "" && name != "" && name != document {
		r.Refuse(v.Path(), "is %s, but the document under rollout says %s: keep one", strictyaml.Quote(name),
			strictyaml.Quote(document))
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
		r.Refuse("templatePatch", "cannot be combined with images: keep one of them; a patch can set images too")
	case !images.Present() && !patch.Present():
		r.Refuse("images", "is required: set the new version's image for each container, or give a templatePatch")
	}
	return Change{Images: r.images(images), TemplatePatch: r.templatePatch(patch)}
}

func (r *Reader) images(v strictyaml.Value) map[string]string {
	images := v.StringMap()
	if v.Present() && len(images) == 0 {
		r.Refuse(v.Path(), "names no container: set the new version's image for each container")
	}
	for _, container := range sortedKeys(images) {
		field, image := strictyaml.Join(v.Path(), container), images[container]
		r.Name(field, container, validation.IsDNS1123Label)
		switch {
		case image == "":
			r.Refuse(field, "has no image")
		case len(image) > maxImageLength || strings.ContainsFunc(image, func(c rune) bool {
			return unicode.IsSpace(c) || unicode.IsControl(c)
		}):
			r.Refuse(field, "%s is not an image name: it must have no blanks and at most %d characters",
				strictyaml.Quote(image), maxImageLength)
		}
	}
	return images
}

// templatePatch reads a patch of a pod template, with the keys metadata and spec.
func (r *Reader) templatePatch(v strictyaml.Value) json.RawMessage {
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
			r.Refuse(strictyaml.Join(v.Path(), key),
				"is not part of a pod template, which has metadata and spec: patch only the template")
		}
	}
	if len(raw) > MaxTemplatePatch {
		r.Refuse(v.Path(), "is too large: %d bytes, of at most %d", len(raw), MaxTemplatePatch)
	}
	return raw
}

// boundedText reads a free text of at most `most` characters.
func (r *Reader) boundedText(v strictyaml.Value, most int) string {
	text := v.FreeText()
	if n := utf8.RuneCountInString(text); n > most {
		r.Refuse(v.Path(), "is too long: %d characters, of at most %d", n, most)
	}
	return text
}

// sortedKeys returns the keys in ascending order, so that workflow code is deterministic.
//
//workflowcheck:ignore
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// ServiceRollout defines how deploys of a service (catalogue entry) are released: by a rollout of each workload.
type ServiceRollout struct {
	Strategy Strategy `json:"strategy"`
	Policy   Policy   `json:"policy"`
}

// Spec returns the rollout of one workload of the service. It has the workload's name.
func (o ServiceRollout) Spec(w catalog.Workload, change Change) Spec {
	return Spec{Party: w.PartyOrDefault(), Namespace: w.Namespace, Name: w.WorkloadRef.Name, WorkloadRef: w.WorkloadRef,
		Strategy: o.Strategy, Policy: o.Policy, Change: change}
}

// DecodeService reads a service as catalog.Decode does, and its strategy and policy by the rules of a rollout.
func DecodeService(data []byte) (catalog.Service, Errors) {
	return catalog.Decode(data, func(s catalog.Service, fields strictyaml.Mapping, found *strictyaml.Findings) {
		if s.RollsOut() {
			NewReader(found).serviceRollout(s, fields)
		}
	})
}

// ReadService returns how deploys of a service are released; nil if the service has no strategy, so that its workloads'
// own update settings apply. The errors of a service that did not come through DecodeService have no lines.
func ReadService(s catalog.Service) (*ServiceRollout, Errors) {
	if !s.RollsOut() {
		return nil, nil
	}
	parts := map[string]json.RawMessage{"strategy": s.Strategy.Raw}
	if s.Policy != nil {
		parts["policy"] = s.Policy.Raw
	}
	raw, err := json.Marshal(parts)
	if err != nil {
		return nil, Errors{{Field: "strategy", Reason: fmt.Sprintf("cannot be read: %s", err)}}
	}
	root, found, ok := strictyaml.Parse(raw)
	if !ok {
		return nil, found.Sorted()
	}
	read := NewReader(found).serviceRollout(s, root.Mapping("strategy", "policy"))
	wrong := found.Sorted()
	for i := range wrong {
		wrong[i].Line = 0
	}
	return &read, wrong
}

// serviceRollout reads strategy and policy. The default step deadline is the deadline of one operation on the service.
// Approvals and timers run between the steps and count for neither.
func (r *Reader) serviceRollout(s catalog.Service, fields strictyaml.Mapping) ServiceRollout {
	d := document{draft: r.strategy(fields.Field("strategy"), false)}
	var refs []catalog.WorkloadRef
	for _, w := range s.Workloads {
		refs = append(refs, w.WorkloadRef)
	}
	r.check(&d.draft, refs...)
	r.refuseConflictingRoutes(&d.draft, s.Workloads)
	policy := fields.Field("policy")
	out := ServiceRollout{Strategy: d.Strategy, Policy: r.policyOf(&d, policy)}
	if !policy.Has("stepDeadlineSeconds") {
		out.Policy.StepDeadlineSeconds = s.Deadline()
	}
	return out
}

// refuseConflictingRoutes refuses routes that several rollouts of the service would move: each pins the Service to pods
// of its own workload.
func (r *Reader) refuseConflictingRoutes(d *draft, workloads []catalog.Workload) {
	if !d.HasTraffic() {
		return
	}
	first := map[[2]string]catalog.Workload{}
	for _, w := range workloads {
		place := [2]string{w.PartyOrDefault(), w.Namespace}
		if other, taken := first[place]; taken {
			r.Refuse(strictyaml.Join(d.body, "trafficRoutings"),
				"would be moved by the rollouts of both %s and %s: put the workloads into different services, "+
					"or share the routes by trafficRoutingRef", other, w)
			return
		}
		first[place] = w
	}
}
