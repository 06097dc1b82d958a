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

// atOnce is how long a Rollout may take to show that its workload is ready: a second, and one more where the machine is busy.
const atOnce = 2 * time.Second

// Objects are applied in any order: a Rollout waits for its workload, and a release for what it refers to, without anybody's help.
func TestLongDocumentsInAnyOrder(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	e, g := harness.StartGuarded(t)
	for _, test := range []struct {
		file string
		// missing are what is applied last, each with what the Rollout says while it is missing.
		missing []missing
	}{
		{"canary-v1beta1", []missing{
			{"Service %s/echoserver does not exist", func(s *specimen) { s.engine.Service("echoserver") }},
			{"Ingress %s/echoserver does not exist", func(s *specimen) { s.engine.Ingress("echoserver") }}}},
		{"canary-v1alpha1", []missing{{"Service %s/echoserver does not exist", func(s *specimen) { s.route("echoserver", harness.Nginx) }}}},
		{"reference-v1alpha1", []missing{
			{"TrafficRouting %s/mse-traffic does not exist", (*specimen).routing},
			{"Service %s/spring-cloud-a does not exist", func(s *specimen) { s.route("spring-cloud-a", harness.Nginx) }}}},
	} {
		t.Run(test.file, func(t *testing.T) {
			t.Parallel()
			s := document(t, e, g, test.file)
			s.apply()
			s.wait("Initial", func(st v1beta1.RolloutStatus) bool { return st.Phase == v1beta1.PhaseInitial })
			s.workload()
			require.True(t, poll(func() bool {
				ready, _, _ := unstructured.NestedInt64(s.engine.Object(s.kind, s.wl).Object, "status", "readyReplicas")
				return ready == size
			}), "its controller never says that it is ready")
			ready := time.Now()
			steps := int32(len(s.steps()))
			s.wait("whole", func(st v1beta1.RolloutStatus) bool {
				c := commonIn(st)
				return st.Phase == v1beta1.PhaseHealthy && c.StableRevision != "" && c.CurrentStepIndex == steps && c.CurrentStepState == "Completed" &&
					st.CanaryStatus.CanaryReadyReplicas == size
			})
			require.Less(t, time.Since(ready), atOnce, "it shows that its workload is whole")

			s.setImage()
			for _, last := range test.missing {
				says := fmt.Sprintf(last.says, s.namespace)
				s.wait("waiting: "+says, func(st v1beta1.RolloutStatus) bool {
					return st.Phase == v1beta1.PhaseProgressing && strings.Contains(st.Message, says) && slices.ContainsFunc(st.Conditions, stalled)
				})
				count, _ := s.newPods()
				require.Zero(t, count, "no pod moves before")
				last.apply(s)
			}
			s.wait("at rest at step 1", func(st v1beta1.RolloutStatus) bool {
				return commonIn(st).CurrentStepIndex == 1 && commonIn(st).CurrentStepState == "StepPaused" && !slices.ContainsFunc(st.Conditions, stalled)
			})
			count, _ := s.newPods()
			require.Equal(t, 1, count, "it has begun")
		})
	}
}

// missing is something that a release refers to, and that is applied last.
type missing struct {
	// says is what the Rollout says, with the namespace in the place of %s.
	says  string
	apply func(s *specimen)
}

func stalled(c v1beta1.Condition) bool {
	return c.Type == v1beta1.ConditionStalled && c.Status == "True"
}
