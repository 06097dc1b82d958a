package strategy

import (
	"encoding/json"
	"fmt"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/strictyaml"
)

// ServiceRollout defines how deploys of a service (catalogue entry) are released: by a rollout of each workload.
type ServiceRollout struct {
	Strategy Strategy `json:"strategy"`
	Policy   Policy   `json:"policy"`
}

// Spec returns the rollout of one workload of the service. It has the workload's name.
func (o ServiceRollout) Spec(w catalog.Workload, change Change) Spec {
	return Spec{Party: w.PartyOrDefault(), Namespace: w.Namespace, Name: w.WorkloadRef.Name, WorkloadRef: w.WorkloadRef,
		Strategy: o.Strategy,
		Policy:   o.Policy, Change: change}
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
	d.deployment = len(s.Workloads) > 0 && kindOf(s.Workloads[0].WorkloadRef).Supports(StyleCanary)
	r.check(&d.draft)
	for _, w := range s.Workloads {
		r.checkStyle(&d.draft, w.WorkloadRef)
	}
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
