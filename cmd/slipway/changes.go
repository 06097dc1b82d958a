package main

import (
	"fmt"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
)

// changes are the lines that tell how a task came from one state to the next. A task that was not seen before is told as far as it is.
func changes(before, now plan.Task) []string {
	var lines []string
	if before.State != now.State || before.Reason != now.Reason {
		lines = append(lines, fmt.Sprintf("task %s is %s%s", now.ID, now.State, because(now.Reason)))
	}
	for _, d := range now.History[min(len(before.History), len(now.History)):] {
		lines = append(lines, decisionLine(d))
	}
	waves := now.Waves()
	for n, wave := range waves {
		if !begun(before, wave) && begun(now, wave) {
			lines = append(lines, fmt.Sprintf("wave %d of %d begins: priority %d, %s", n+1, len(waves), wave.Priority, count(len(wave.Items), "service")))
		}
		for _, i := range wave.Items {
			old := plan.ServiceStatus{State: plan.ItemPending}
			if i < len(before.Services) {
				old = before.Services[i]
			}
			lines = append(lines, serviceChanges(old, now.Services[i])...)
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

func serviceChanges(before, now plan.ServiceStatus) []string {
	var lines []string
	if before.State != now.State || (before.Reason != now.Reason && now.State != plan.ItemPending) {
		took := ""
		if now.StartedAt != nil && now.FinishedAt != nil {
			took = " after " + shortDuration(now.FinishedAt.Sub(*now.StartedAt))
		}
		lines = append(lines, fmt.Sprintf("  service %s: %s %s%s%s", oneLine(string(now.ServiceID)), operation(now.Deployment, now.Method), now.State, took, because(now.Reason)))
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
			lines = append(lines, fmt.Sprintf("  service %s: %s %s%s", oneLine(string(now.ServiceID)), workloadName(w), w.State, because(w.Message)))
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
