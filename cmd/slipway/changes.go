package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

// change is one line that tells what happened to a task, and when.
type change struct {
	at   time.Time
	text string
}

// changes tell how a task came from one state to the next, in the order of time. A task that was not seen before is told as far as it is.
// What the task gives no time for has that of the look.
func changes(before, now plan.Task, look time.Time) []change {
	var lines []change
	for _, d := range now.History[min(len(before.History), len(now.History)):] {
		lines = append(lines, change{timeOr(&d.At, look), decisionLine(d)})
	}
	lines = append(lines, waveChanges(before, now, look)...)
	if before.State != now.State || before.Reason != now.Reason {
		at := look
		if now.State.Final() {
			at = timeOr(now.FinishedAt, look)
		}
		lines = append(lines, change{at, fmt.Sprintf("task %s is %s%s", now.ID, now.State, because(now.Reason))})
	}
	slices.SortStableFunc(lines, func(a, b change) int { return cmp.Compare(a.at.Unix(), b.at.Unix()) })
	return lines
}

func waveChanges(before, now plan.Task, look time.Time) []change {
	var lines []change
	waves := now.Waves()
	for n, wave := range waves {
		if !begun(before, wave) && begun(now, wave) {
			text := fmt.Sprintf("wave %d of %d begins: priority %d, %s", n+1, len(waves), wave.Priority, count(len(wave.Items), "service"))
			lines = append(lines, change{beganAt(now, wave, look), text})
		}
		for _, i := range wave.Items {
			old := plan.ServiceStatus{State: plan.ItemPending}
			if i < len(before.Services) {
				old = before.Services[i]
			}
			lines = append(lines, serviceChanges(old, now.Services[i], look)...)
		}
	}
	return lines
}

// begun says whether any service of the wave was taken up.
func begun(t plan.Task, wave plan.Wave) bool {
	for _, i := range wave.Items {
		if i < len(t.Services) && t.Services[i].State != plan.ItemPending && t.Services[i].State != plan.ItemSkipped {
			return true
		}
	}
	return false
}

// beganAt is when the first service of the wave was taken up.
func beganAt(t plan.Task, wave plan.Wave, look time.Time) time.Time {
	first := look
	for _, i := range wave.Items {
		if at := timeOr(t.Services[i].StartedAt, look); at.Before(first) {
			first = at
		}
	}
	return first
}

// timeOr is the time, or the other one where it is not known.
func timeOr(at *time.Time, other time.Time) time.Time {
	if at == nil || at.IsZero() {
		return other
	}
	return *at
}

// timeOf is when the service came into its state; its workloads have no times of their own.
func timeOf(before, now plan.ServiceStatus, look time.Time) time.Time {
	switch {
	case now.State.Ended():
		return timeOr(now.FinishedAt, look)
	case before.StartedAt == nil:
		return timeOr(now.StartedAt, look)
	}
	return look
}

func serviceChanges(before, now plan.ServiceStatus, look time.Time) []change {
	var lines []change
	if before.State != now.State || (before.Reason != now.Reason && now.State != plan.ItemPending) {
		took := ""
		if now.StartedAt != nil && now.FinishedAt != nil {
			took = " after " + shortDuration(now.FinishedAt.Sub(*now.StartedAt))
		}
		lines = append(lines, change{timeOf(before, now, look),
			fmt.Sprintf("  service %s: %s %s%s%s", oneLine(string(now.ServiceID)), operation(now.Deployment, now.Method), now.State, took, because(now.Reason))})
	}
	at := look
	if now.State.Ended() {
		at = timeOr(now.FinishedAt, look)
	}
	for n, w := range now.Workloads {
		if len(lines) > 0 && w.State == now.State && saidByPart(now) {
			continue
		}
		old := plan.WorkloadStatus{State: plan.ItemPending}
		if n < len(before.Workloads) {
			old = before.Workloads[n]
		}
		if old.State != w.State || old.Message != w.Message {
			lines = append(lines, change{at, fmt.Sprintf("  service %s: %s %s%s", oneLine(string(now.ServiceID)), workloadName(w), w.State, because(w.Message))})
		}
	}
	return lines
}

// because appends a reason where there is one.
func because(reason string) string {
	if reason = oneLine(reason); reason == "" {
		return ""
	}
	return ": " + reason
}

// workloadName reads "Deployment shop/order", with the party in front unless it is the default one.
func workloadName(w plan.WorkloadStatus) string {
	name := oneLine(w.Kind + " " + w.Namespace + "/" + w.Name)
	if w.Party != "" && w.Party != catalog.DefaultParty {
		return oneLine(w.Party) + ": " + name
	}
	return name
}

// count is a number with its noun: "1 service", "3 services".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
