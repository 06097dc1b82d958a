package serving

import (
	"bytes"
	"encoding/json"
	"fmt"

	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// FitsState returns why an operation of this kind, generation and workflow cannot be one that the engine has started
// for the KusciaDeployment; "" if it can.
func (in Input) FitsState(kd *kuscia.KusciaDeployment, workflowID string) string {
	id := fmt.Sprintf("%s%d", WorkflowPrefix(kd.Name), kd.Generation)
	switch {
	case in.Generation != kd.Generation:
		return fmt.Sprintf("generation %d of the serving was asked for, and it has %d", in.Generation, kd.Generation)
	case workflowID != id && workflowID != UniqueWorkflowID(id, string(kd.UID)):
		return "an operation on this serving has the workflow ID " + id
	case (in.Kind == KindDelete) != (kd.DeletionTimestamp != nil), in.Kind == KindCreate && kd.Status.Served != nil,
		(in.Kind == KindUpdate || in.Kind == KindRecreate) && kd.Status.Served == nil, !startedKinds[in.Kind]:
		return fmt.Sprintf("the serving needs no %s", in.Kind)
	}
	return ""
}

var startedKinds = map[string]bool{KindCreate: true, KindUpdate: true, KindRecreate: true, KindDelete: true}

// UniqueWorkflowID is the workflow ID of an operation while an operation on an earlier serving of the same name has id.
func UniqueWorkflowID(id, uid string) string { return fmt.Sprintf("%s-%.8s", id, uid) }

// Differs returns why the input of an operation is not the one that the engine makes of the home cluster; "" if it is.
// The cause of a recreation is only text, and the budget a setting of the server: neither is compared.
func (in Input) Differs(declared Input) string {
	for _, version := range []struct {
		packed, declared []byte
		digest           string
	}{{in.Target, declared.Target, declared.TargetDigest}, {in.Previous, declared.Previous, declared.PreviousDigest}} {
		if bytes.Equal(version.packed, version.declared) {
			continue
		}
		// another build may compress the same version differently
		unpacked, err := Unpack(version.packed)
		if err != nil {
			return err.Error()
		}
		if digest, err := unpacked.Digest(); err != nil || digest != version.digest {
			return "its version is not the one that the home cluster declares"
		}
	}
	if in.terms() != declared.terms() {
		return "its parties, policy or versions are not those that the home cluster declares"
	}
	return ""
}

// terms is what Differs compares besides the packed versions, as text.
func (in Input) terms() string {
	in.Target, in.Previous, in.Cause, in.Continued, in.UnreachableBudgetSeconds = nil, nil, "", nil, 0
	text, err := json.Marshal(in)
	if err != nil {
		return err.Error()
	}
	return string(text)
}
