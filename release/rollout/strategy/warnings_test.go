package strategy

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"

	"slipway.io/slipway/release/catalog"
)

func TestWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		reason string
		style  Style
		size   int32
		steps  []string
		want   []string // one part of each warning, in order
	}{
		{"20 % of one pod is that pod", StylePartition, 1, []string{"20%", "100%"},
			[]string{"step 1 of 2 asks for 20% and replaces every pod, since Deployment shop/web has 1 pod"}},
		{"5 of 2 pods are both", StylePartition, 2, []string{"5"}, []string{"step 1 of 1 asks for 5"}},
		{"a number equal to the size replaces every pod before the last step", StylePartition, 2, []string{"2", "100%"},
			[]string{"step 1 of 2 asks for 2"}},
		{"a last step equal to the size is intended", StylePartition, 5, []string{"1", "5"}, nil},
		{"100 % is intended in any step", StylePartition, 1, []string{"100%"}, nil},
		{"a percentage leaves one pod of two", StylePartition, 2, []string{"99%", "100%"}, nil},
		{"an extra workload does not touch the stable pods", StyleCanary, 1, []string{"20%", "100%"}, nil},
		{"blue-green keeps every old pod", StyleBlueGreen, 1, []string{"20%", "100%"}, nil},
		{"a workload without pods gets no warning", StylePartition, 0, []string{"20%"}, nil},
		{"each such step is named", StylePartition, 1, []string{"10%", "50%", "100%"},
			[]string{"step 1 of 3", "step 2 of 3"}},
	} {
		s := Strategy{Style: c.style}
		for _, r := range c.steps {
			s.Steps = append(s.Steps, Step{Replicas: intstr.Parse(r)})
		}
		got := s.Warnings(catalog.Workload{Namespace: "shop",
			WorkloadRef: catalog.WorkloadRef{Kind: "Deployment", Name: "web"}}, c.size)
		require.Len(t, got, len(c.want), c.reason)
		for i, want := range c.want {
			require.Contains(t, got[i], want, c.reason)
		}
	}
}
