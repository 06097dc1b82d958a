package task

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"slipway.io/slipway/cli/follow"
	"slipway.io/slipway/cli/render"
	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

// Changes tell how a task came from one state to the next, in the order of time. A task that was not seen before is told as far as it is.
// What the task gives no time for has that of the look.
func Changes(before, now plan.Task, look time.Time) []follow.Change {
	var lines []follow.Change
	for _, d := range now.History[min(len(before.History), len(now.History)):] {
		lines = append(lines, follow.Change{At: render.TimeOr(&d.At, look), Text: decisionLine(d)})
	}
	lines = append(lines, waveChanges(before, now, look)...)
	if before.State != now.State || before.Reason != now.Reason {
		at := look
		if now.State.Final() {
			at = render.TimeOr(now.FinishedAt, look)
		}
		lines = append(lines, follow.Change{At: at, Text: fmt.Sprintf("task %s is %s%s", now.ID, now.State, render.Because(now.Reason))})
	}
	slices.SortStableFunc(lines, func(a, b follow.Change) int { return cmp.Compare(a.At.Unix(), b.At.Unix()) })
	return lines
}

func waveChanges(before, now plan.Task, look time.Time) []follow.Change {
	var lines []follow.Change
	waves := now.Waves()
	for n, wave := range waves {
		if !begun(before, wave) && begun(now, wave) {
			text := fmt.Sprintf("wave %d of %d begins: priority %d, %s", n+1, len(waves), wave.Priority, render.Count(len(wave.Items), "service"))
			lines = append(lines, follow.Change{At: beganAt(now, wave, look), Text: text})
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
		if at := render.TimeOr(t.Services[i].StartedAt, look); at.Before(first) {
			first = at
		}
	}
	return first
}

// timeOf is when the service came into its state; its workloads have no times of their own.
func timeOf(before, now plan.ServiceStatus, look time.Time) time.Time {
	switch {
	case now.State.Ended():
		return render.TimeOr(now.FinishedAt, look)
	case before.StartedAt == nil:
		return render.TimeOr(now.StartedAt, look)
	}
	return look
}

func serviceChanges(before, now plan.ServiceStatus, look time.Time) []follow.Change {
	var lines []follow.Change
	if before.State != now.State || (before.Reason != now.Reason && now.State != plan.ItemPending) {
		took := ""
		if now.StartedAt != nil && now.FinishedAt != nil {
			took = " after " + render.ShortDuration(now.FinishedAt.Sub(*now.StartedAt))
		}
		lines = append(lines, follow.Change{At: timeOf(before, now, look),
			Text: fmt.Sprintf("  service %s: %s %s%s%s", render.OneLine(string(now.ServiceID)), Operation(now.Deployment, now.Method), now.State, took, render.Because(now.Reason))})
	}
	at := look
	if now.State.Ended() {
		at = render.TimeOr(now.FinishedAt, look)
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
			lines = append(lines, follow.Change{At: at, Text: fmt.Sprintf("  service %s: %s %s%s", render.OneLine(string(now.ServiceID)), workloadName(w), w.State, render.Because(w.Message))})
		}
	}
	return lines
}

// workloadName reads "Deployment shop/order", with the party in front unless it is the default one.
func workloadName(w plan.WorkloadStatus) string {
	name := render.OneLine(w.Kind + " " + w.Namespace + "/" + w.Name)
	if w.Party != "" && w.Party != catalog.DefaultParty {
		return render.OneLine(w.Party) + ": " + name
	}
	return name
}
