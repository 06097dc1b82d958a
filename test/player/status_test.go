package player

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// TestPhase checks that the phase of a pod follows from its containers by Kubernetes' rules.
func TestPhase(t *testing.T) {
	t.Parallel()
	ended := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	notStarted := corev1.ContainerStatus{State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{}}}
	running := corev1.ContainerStatus{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
	backedOff := corev1.ContainerStatus{State: notStarted.State, LastTerminationState: ended(1)}
	done, failed := corev1.ContainerStatus{State: ended(0)}, corev1.ContainerStatus{State: ended(1)}
	type all []corev1.ContainerStatus
	for name, c := range map[string]struct {
		inits, mains all
		want         corev1.PodPhase
	}{
		"nothing has started":                        {all{notStarted}, all{notStarted}, corev1.PodPending},
		"an init container runs":                     {all{done, running}, all{notStarted}, corev1.PodPending},
		"an init container is backed off":            {all{backedOff}, all{notStarted}, corev1.PodPending},
		"an init container has failed permanently":   {all{failed, notStarted}, all{notStarted}, corev1.PodFailed},
		"one container has started, another has not": {all{done}, all{running, notStarted}, corev1.PodPending},
		"a container runs":                           {all{done}, all{running, failed}, corev1.PodRunning},
		"a container is backed off":                  {nil, all{backedOff, done}, corev1.PodRunning},
		"all have succeeded":                         {all{done}, all{done, done}, corev1.PodSucceeded},
		"all have ended, one of them failed":         {nil, all{done, failed}, corev1.PodFailed},
	} {
		assert.Equal(t, c.want, phaseOf(c.inits, c.mains), name)
	}
}

// TestExpansion checks that only Kubernetes' $(NAME) is expanded, and no shell syntax.
func TestExpansion(t *testing.T) {
	t.Parallel()
	env := environment{"A": "1", "B": "$(A)"}
	assert.Equal(t, "1 $(A) $(A) $(C) $A ${A} $", env.expand("$(A) $(B) $$(A) $(C) $A ${A} $$"))
}

// TestSubPathStaysInVolume checks that a link in a volume cannot lead out of it.
func TestSubPathStaysInVolume(t *testing.T) {
	t.Parallel()
	p := &play{Player: &Player{}, pod: &corev1.Pod{}, folder: t.TempDir()}
	volume := p.volume("data")
	require.NoError(t, p.fill(volume, map[string]file{"in/file": {text: []byte("x"), mode: 0o644}}))
	for _, path := range []string{"in/file", "new/folder"} {
		_, err := resolveSubPath(volume, path)
		require.NoError(t, err, path)
	}
	assert.DirExists(t, volume+"/new/folder")
	for _, path := range []string{"../other", "/etc"} {
		_, err := resolveSubPath(volume, path)
		require.Error(t, err, path)
	}
	require.NoError(t, os.Symlink("/etc", volume+"/out"))
	_, err := resolveSubPath(volume, "out/ssl")
	require.ErrorContains(t, err, "escapes")
}
