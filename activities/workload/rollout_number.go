package workload

import (
	"context"
	"encoding/json"

	"slipway.io/slipway/failpoint"
	"slipway.io/slipway/kube"
	"slipway.io/slipway/release/jsonpatch"
	"slipway.io/slipway/release/rollout"
	"slipway.io/slipway/release/rollout/pods"
)

// labelPods labels the pods of a step with its number. A pod that has disappeared needs no label.
func (t *rolloutJob) labelPods(ctx context.Context, n *pods.PodNumbers) error {
	const labels = "/metadata/labels/"
	for _, p := range n.Pods {
		body, err := json.Marshal([]jsonpatch.Op{jsonpatch.Test("/metadata/uid", p.UID),
			jsonpatch.Add(labels+jsonpatch.Escape(rollout.LabelRolloutID), n.RolloutID),
			jsonpatch.Add(labels+jsonpatch.Escape(rollout.LabelBatchID), n.Batch)})
		if err != nil {
			return err
		}
		failpoint.Hit("rollout.pod.number.before")
		_, err = t.a.cluster.Patch(ctx, t.ref(podsResource, p.Name), body, false)
		failpoint.Hit("rollout.pod.number.after")
		if err == nil {
			continue
		}
		if kind := kube.Classify(err); kind != kube.Missing && kind != kube.Rejected {
			return err
		}
	}
	return nil
}
