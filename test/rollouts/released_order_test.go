package rollouts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"slipway.io/slipway/release/kruise/v1beta1"
	"slipway.io/slipway/test/harness"
)

// atOnce is the time within which a Rollout must show that its workload is ready: 1 s, and 1 s more for a busy machine.
const atOnce = 2 * time.Second

// Objects can be applied in any order: a Rollout waits for its workload, and a release waits for the objects that it
// refers to. Neither needs a verb to continue.
func TestLongDocuments_WaitForMissingObjects(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, test := range []struct {
		file string
		// missing are the objects that are applied last, each with the message of the Rollout while it is missing.
		missing []missing
	}{
		{"canary-v1beta1", []missing{
			{"Service %s/echoserver does not exist", func(s *appliedDocument) { s.engine.Service("echoserver") }},
			{"Ingress %s/echoserver does not exist", func(s *appliedDocument) { s.engine.Ingress("echoserver") }}}},
		{"canary-v1alpha1", []missing{{"Service %s/echoserver does not exist", func(s *appliedDocument) {
			s.route("echoserver", harness.Nginx)
		}}}},
		{"reference-v1alpha1", []missing{
			{"TrafficRouting %s/mse-traffic does not exist", (*appliedDocument).routing},
			{"Service %s/spring-cloud-a does not exist", func(s *appliedDocument) {
				s.route("spring-cloud-a", harness.Nginx)
			}}}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			s := document(t, e, g, test.file)
			s.apply()
			s.wait("Initial", func(st v1beta1.RolloutStatus) bool { return st.Phase == v1beta1.PhaseInitial })
			s.workload()
			require.True(t, poll(func() bool {
				ready, _, _ := unstructured.NestedInt64(s.engine.Object(s.kind, s.workloadName).Object, "status",
					"readyReplicas")
				return ready == size
			}), "the workload never became ready")
			ready := time.Now()
			steps := int32(len(s.steps()))
			s.wait("Healthy with a ready workload", func(st v1beta1.RolloutStatus) bool {
				c := commonIn(st)
				return st.Phase == v1beta1.PhaseHealthy && c.StableRevision != "" && c.CurrentStepIndex == steps &&
					c.CurrentStepState == "Completed" &&
					st.CanaryStatus.CanaryReadyReplicas == size
			})
			require.Less(t, time.Since(ready), atOnce, "the Rollout shows the ready workload in time")

			s.setImage()
			for _, last := range test.missing {
				says := fmt.Sprintf(last.says, s.namespace)
				s.wait("waiting: "+says, func(st v1beta1.RolloutStatus) bool {
					return st.Phase == v1beta1.PhaseProgressing && strings.Contains(st.Message, says) &&
						slices.ContainsFunc(st.Conditions, stalled)
				})
				count, _ := s.newPods()
				require.Zero(t, count, "no pod is replaced while an object is missing")
				last.apply(s)
			}
			s.wait("waiting at step 1", func(st v1beta1.RolloutStatus) bool {
				return commonIn(st).CurrentStepIndex == 1 && commonIn(st).CurrentStepState == "StepPaused" &&
					!slices.ContainsFunc(st.Conditions, stalled)
			})
			count, _ := s.newPods()
			require.Equal(t, 1, count, "the release has begun")
		})
	}
}

// missing is an object that a release refers to and that is applied last.
type missing struct {
	// says is the message of the Rollout, with %s for the namespace.
	says  string
	apply func(s *appliedDocument)
}

func stalled(c v1beta1.Condition) bool {
	return c.Type == v1beta1.ConditionStalled && c.Status == "True"
}
