package player

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// runner runs one container of a pod, with restarts if needed.
type runner struct {
	*play
	container *corev1.Container
	// statuses and index locate the status of the container.
	statuses []corev1.ContainerStatus
	index    int
	init     bool
}

func (p *play) newRunner(c *corev1.Container, of []corev1.ContainerStatus, at int) *runner {
	return &runner{play: p, container: c, statuses: of, index: at, init: at < len(p.pod.Spec.InitContainers) &&
		c == &p.pod.Spec.InitContainers[at]}
}

// run runs the container until it need not or must not run again, and reports whether it succeeded.
func (r *runner) run() bool {
	wait := r.options.Backoff
	for restarts := int32(0); ; restarts++ {
		end, begun := r.attempt(restarts)
		if !begun {
			return false
		}
		if !r.shouldRestart(end.ExitCode) || r.ending() {
			r.change(func(s *corev1.ContainerStatus) {
				s.Ready, s.Started, s.State = r.init && end.ExitCode == 0, new(bool),
					corev1.ContainerState{Terminated: end}
			})
			return end.ExitCode == 0
		}
		r.change(func(s *corev1.ContainerStatus) {
			s.Ready, s.Started, s.LastTerminationState = false, new(bool), corev1.ContainerState{Terminated: end}
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
				Message: fmt.Sprintf(
					"back-off %s restarting failed container=%s pod=%s_%s(%s)", wait, s.Name, r.pod.Name,
					r.pod.Namespace,
					r.pod.UID)}}
		})
		if !r.pause(wait) {
			r.change(func(s *corev1.ContainerStatus) { s.State = corev1.ContainerState{Terminated: end} })
			return false
		}
		wait = min(2*wait, 8*r.options.Backoff)
	}
}

func (r *runner) change(by func(*corev1.ContainerStatus)) { r.status.change(r.statuses, r.index, by) }

// shouldRestart reports whether the container must run again after this exit code.
func (r *runner) shouldRestart(code int32) bool {
	switch r.pod.Spec.RestartPolicy {
	case corev1.RestartPolicyNever:
		return false
	case corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return code != 0 || !r.init
	}
}

// attempt runs the container once. begun is false if the pod must end before the container's inputs exist.
func (r *runner) attempt(restarts int32) (end *corev1.ContainerStateTerminated, begun bool) {
	s, err := r.sandbox()
	for ; err != nil; s, err = r.sandbox() {
		why := err.Error()
		r.change(func(s *corev1.ContainerStatus) {
			s.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CreateContainerConfigError",
				Message: why}}
		})
		if !r.pause(retryInterval) {
			return nil, false
		}
	}
	started := metav1.Now()
	r.change(func(s *corev1.ContainerStatus) {
		yes := true
		s.Ready, s.Started, s.RestartCount = !r.init, &yes, restarts
		s.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: started}}
	})
	if s == nil {
		if !r.init {
			r.idle()
		}
		return &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: started, FinishedAt: metav1.Now()}, true
	}
	return r.process(s, started), true
}

// idle waits for the end of a container without a process.
func (r *runner) idle() {
	select {
	case <-r.endRequested:
	case <-r.ctx.Done():
	}
}

// process runs the container's process to its end.
func (r *runner) process(s *sandbox, started metav1.Time) *corev1.ContainerStateTerminated {
	log := r.output(r.pod.Name, r.container.Name)
	log.begin()
	cmd := s.command()
	cmd.Stdout, cmd.Stderr = log, log
	end := &corev1.ContainerStateTerminated{StartedAt: started}
	if err := cmd.Start(); err != nil {
		end.ExitCode, end.Reason, end.Message = 128, "StartError", err.Error()
	} else {
		end.ExitCode = r.await(cmd)
		end.Message = terminationMessage(s.termination)
	}
	end.FinishedAt = metav1.Now()
	switch {
	case end.Reason != "":
	case end.ExitCode == 0:
		end.Reason = "Completed"
	default:
		end.Reason = "Error"
		if end.Message == "" && r.container.TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
			end.Message = log.tail()
		}
	}
	return end
}

// await waits for a process. When the pod must end, it sends SIGTERM, and SIGKILL after the grace period.
func (r *runner) await(cmd *exec.Cmd) int32 {
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		return exitCode(err)
	case <-r.ctx.Done():
	case <-r.endRequested:
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-done:
			return exitCode(err)
		case <-r.ctx.Done():
		case <-time.After(r.grace):
		}
	}
	_ = cmd.Process.Kill() // it is the first process of its PID namespace: all others end with it
	return exitCode(<-done)
}

func exitCode(err error) int32 {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &exit):
		return 128
	}
	if how := exit.Sys().(syscall.WaitStatus); how.Signaled() {
		return 128 + int32(how.Signal())
	}
	return int32(exit.ExitCode())
}

// maxMessageBytes is how much of a termination message Kubernetes keeps.
const maxMessageBytes = 4096

func terminationMessage(path string) string {
	text, _ := os.ReadFile(path)
	return string(text[:min(len(text), maxMessageBytes)])
}

// sandbox returns the sandbox of the container's process; nil for a container without a process.
func (r *runner) sandbox() (*sandbox, error) {
	if r.init && r.container.RestartPolicy != nil {
		return nil, fmt.Errorf("init container %s has a restartPolicy: the player does not support sidecar init "+
			"containers", r.container.Name)
	}
	program, played := r.options.Images[r.container.Image]
	if !played {
		return nil, nil
	}
	env, err := r.environment(r.container)
	if err != nil {
		return nil, err
	}
	mounts, err := r.mounts(r.container)
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(r.folder, "containers", r.container.Name)
	s := &sandbox{root: filepath.Join(folder, "root"), termination: filepath.Join(folder, "termination"),
		env: env.list(), folder: r.container.WorkingDir}
	if err := s.create(); err != nil {
		return nil, err
	}
	s.mounts = append(mounts, mount{from: s.termination, to: r.container.TerminationMessagePath})
	s.user, s.group, s.groups = identity(r.pod, r.container)
	argv := r.container.Command
	if len(argv) == 0 {
		argv = []string{s.entrypoint(program)}
	} else {
		s.entrypoint(program)
	}
	for _, arg := range append(argv[:len(argv):len(argv)], r.container.Args...) {
		s.args = append(s.args, env.expand(arg))
	}
	return s, nil
}

// identity returns the user and groups of the process; 0 is root.
func identity(pod *corev1.Pod, c *corev1.Container) (user, group int64, groups []int64) {
	of := func(values ...*int64) int64 {
		for _, v := range values {
			if v != nil {
				return *v
			}
		}
		return 0
	}
	all, own := pod.Spec.SecurityContext, c.SecurityContext
	if all == nil {
		all = &corev1.PodSecurityContext{}
	}
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	groups = append(groups, all.SupplementalGroups...)
	if all.FSGroup != nil {
		groups = append(groups, *all.FSGroup)
	}
	return of(own.RunAsUser, all.RunAsUser), of(own.RunAsGroup, all.RunAsGroup), groups
}
