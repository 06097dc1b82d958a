package strategy

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// OfService is how deploys of a catalogue entry are released: by a Rollout of each workload.
type OfService struct {
	Strategy Strategy `json:"strategy"`
	Policy   Policy   `json:"policy"`
}

// Spec is the Rollout of one workload of the service. It has the workload's name.
func (o OfService) Spec(w catalog.Workload, change Change) Spec {
	return Spec{Party: w.PartyOrDefault(), Namespace: w.Namespace, Name: w.WorkloadRef.Name, WorkloadRef: w.WorkloadRef, Strategy: o.Strategy,
		Policy: o.Policy, Change: change}
}

// DecodeService reads a catalogue entry as catalog.Decode does, and its strategy and policy by the rules of a Rollout.
func DecodeService(data []byte) (catalog.Service, Errors) {
	return catalog.Decode(data, func(s catalog.Service, fields strictyaml.Mapping, found *strictyaml.Findings) {
		if s.RollsOut() {
			NewReader(found).ofService(s, fields)
		}
	})
}

// ReadService reads how deploys of a catalogue entry are released; nil where the entry has no strategy, and its workloads' own update settings count. The
// errors, of an entry that did not come through DecodeService, have no lines.
func ReadService(s catalog.Service) (*OfService, Errors) {
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
	read := NewReader(found).ofService(s, root.Mapping("strategy", "policy"))
	wrong := found.Sorted()
	for i := range wrong {
		wrong[i].Line = 0
	}
	return &read, wrong
}

// ofService reads strategy and policy. A step may take as long as one operation on the service, unless the policy says otherwise: the time of people
// and of timers is between the steps, and counts for neither.
func (r *Reader) ofService(s catalog.Service, fields strictyaml.Mapping) OfService {
	d := document{draft: r.strategy(fields.Field("strategy"), false)}
	d.deployment = len(s.Workloads) > 0 && isDeployment(s.Workloads[0].WorkloadRef)
	r.check(&d.draft)
	for _, w := range s.Workloads {
		r.checkStyle(&d.draft, w.WorkloadRef)
	}
	r.checkOneRoute(&d.draft, s.Workloads)
	policy := fields.Field("policy")
	out := OfService{Strategy: d.Strategy, Policy: r.policyOf(&d, policy)}
	if !policy.Has("stepDeadlineSeconds") {
		out.Policy.StepDeadlineSeconds = s.Deadline()
	}
	return out
}

// checkOneRoute refuses routes that several Rollouts of the service would move: each pins the Service to pods of its own workload.
func (r *Reader) checkOneRoute(d *draft, workloads []catalog.Workload) {
	if !d.HasTraffic() {
		return
	}
	first := map[[2]string]catalog.Workload{}
	for _, w := range workloads {
		place := [2]string{w.PartyOrDefault(), w.Namespace}
		if other, taken := first[place]; taken {
			r.Refuse(strictyaml.Join(d.body, "trafficRoutings"), "would be moved by the Rollouts of both %s and %s: put the workloads into different services, "+
				"or share the routes by trafficRoutingRef", other, w)
			return
		}
		first[place] = w
	}
}
