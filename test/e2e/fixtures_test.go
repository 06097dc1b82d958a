package e2e

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
)

// threeServices releases "one" and "two" together, then "later".
const threeServices = `deployPlanItems:
- {serviceId: one, priority: 2, deployment: RESTART}
- {serviceId: two, priority: 2, deployment: RESTART}
- {serviceId: later, priority: 1, deployment: RESTART}
`

// slowToReady makes every pod take 3 s to become ready (a KWOK stage of the local stack).
func slowToReady(d *appsv1.Deployment) {
	d.Spec.Template.Annotations = map[string]string{"dev.slipway.io/behaviour": "slow",
		"dev.slipway.io/ready-after": "3s"}
}

// badImage makes every pod fail to pull its image.
func badImage(d *appsv1.Deployment) {
	d.Spec.Template.Spec.Containers[0].Image = "registry.test/app:bad"
}

// between returns the text between two markers.
func between(t *testing.T, text, from, to string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, from)
	require.True(t, ok, "%q is not in:\n%s", from, text)
	part, _, ok := strings.Cut(rest, to)
	require.True(t, ok)
	return part
}
