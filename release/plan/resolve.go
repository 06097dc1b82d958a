package plan

import (
	"fmt"
	"slices"
	"strings"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/phrase"
	"slipway.io/slipway/release/rollout/strategy"
	"slipway.io/slipway/release/source"
	"slipway.io/slipway/release/strictyaml"
)

// maxWorkloads is the maximum number of workloads of one plan: the state of all has to fit into one Temporal response
// (2 MiB). If pod templates change, the state also has revisions and packages, and maxTemplates is the maximum.
const maxWorkloads, maxTemplates = 3000, 2000

// Resolve returns what is wrong with a valid plan in view of these catalogue entries.
func Resolve(d Document, services map[ServiceID]catalog.Service) strictyaml.Errors {
	r := &resolver{document: d, services: services, found: &strictyaml.Findings{}, invalid: map[ServiceID]string{}}
	for i := range d.Items {
		r.checkItem(i)
	}
	for _, wave := range d.Waves() {
		r.checkWave(wave)
	}
	r.checkSize()
	return r.found.Sorted()
}

// checkSize refuses a plan that is too large for one task.
func (r *resolver) checkSize() {
	total, room := 0, maxWorkloads*maxTemplates
	for _, item := range r.document.Items {
		n := len(item.selected(r.services[item.ServiceID].Workloads))
		total += n
		switch item.Deployment {
		case Start, Stop, Restart:
			room -= n * maxTemplates
		default:
			room -= n * maxWorkloads
		}
	}
	if room < 0 {
		r.found.Refuse(0, keyItems, "the services of the plan have %d workloads: at most %d fit into one task, %d "+
			"where their pod templates are deployed or restored; split the plan", total, maxWorkloads, maxTemplates)
	}
}

// Askable returns for each item whether the parties can check its workloads although the plan has these errors: an item
// without one, and a START or STOP that only some of its workloads can't do.
func (d Document) Askable(wrong strictyaml.Errors) []bool {
	sound := slices.Repeat([]bool{true}, len(d.Items))
	for _, e := range wrong {
		if e.Item < 1 || e.Item > len(d.Items) {
			continue
		}
		if i := e.Item - 1; !d.Items[i].resizes() || e.Field != itemField(i, keyDeployment) {
			sound[i] = false
		}
	}
	return sound
}

// resizes reports whether the item's operation needs workloads that have a size.
func (i Item) resizes() bool { return i.Deployment == Start || i.Deployment == Stop }

// CanDo reports whether the operation of item n (an index into the document) can be done to a workload of its service.
func (s Snapshot) CanDo(n int, w catalog.Workload) bool {
	return w.WorkloadRef.Sized() || !s.Document.Items[n].resizes()
}

type resolver struct {
	document Document
	services map[ServiceID]catalog.Service
	found    *strictyaml.Findings
	// invalid caches the problems of each catalogue entry, "" if it is valid, so that each entry is validated only
	// once.
	invalid map[ServiceID]string
}

func (r *resolver) checkItem(i int) {
	item := r.document.Items[i]
	service, ok := r.services[item.ServiceID]
	if !ok {
		r.refuse(i, keyServiceID, "service %s is not in the catalogue: create it (PUT /api/v1/services/%s)",
			item.ServiceID, item.ServiceID)
		return
	}
	if problems := r.problems(item.ServiceID); problems != "" {
		r.refuse(i, keyServiceID, "the catalogue entry of service %s is not valid: %s", item.ServiceID, problems)
		return
	}
	selected := item.selected(service.Workloads)
	if len(selected) == 0 {
		r.refuse(i, keyDeployLabel, "selects nothing: no workload of service %s carries %s; %s",
			item.ServiceID, labelChoice(item.labels()), labelsOf(service))
	}
	if item.resizes() {
		for _, w := range selected {
			if !w.WorkloadRef.Sized() {
				r.refuse(i, keyDeployment, "%s cannot be done to %s of service %s: a DaemonSet has no size; use "+
					"RESTART, or select other workloads by deployLabel", item.Deployment, w, item.ServiceID)
			}
		}
	}
	r.checkSource(i, service)
}

// checkSource refuses a deploy if the service does not define how it is deployed.
func (r *resolver) checkSource(i int, service catalog.Service) {
	item := r.document.Items[i]
	switch item.Deployment {
	case HTTPUploadDeploy:
		r.checkPackage(i, service, keyHTTPSrcURI, item.HTTPSrcURI)
	case CompileDeploy:
		if _, err := source.ParseRepository(item.CompileRepoPath); err != nil {
			r.refuse(i, keyCompileRepoPath, "%v", err)
		}
		switch {
		case service.Build == nil:
			r.refuse(i, keyDeployment,
				"service %s has no `build` in the catalogue, which says how it is compiled: add it", item.ServiceID)
		case service.Build.Package != "":
			r.checkPackage(i, service, keyDeployment, catalog.FillSample(service.Build.Package))
		}
	}
}

// checkPackage refuses a package deploy if the service does not define where the package goes. key is the item's field
// that sets the package.
func (r *resolver) checkPackage(i int, service catalog.Service, key, packageURL string) {
	id := r.document.Items[i].ServiceID
	switch {
	case service.Package == nil:
		r.refuse(i, keyDeployment, "service %s has no `package` in the catalogue, which says how a code package "+
			"reaches its containers: add it", id)
	case !service.Package.Unpacked() && source.FileOf(service.Package.File, packageURL) == "":
		r.refuse(i, key, "names no file, and the package of service %s is not unpacked (unpack: false): set "+
			"package.file in the catalogue", id)
	}
}

// checkWave refuses two services of one wave that change the same object.
func (r *resolver) checkWave(wave Wave) {
	holder := map[string]int{}
	for _, i := range wave.Items {
		item := r.document.Items[i]
		service, ok := r.services[item.ServiceID]
		if !ok || r.problems(item.ServiceID) != "" {
			continue
		}
		for _, w := range item.selected(service.Workloads) {
			first, taken := holder[w.Identity()]
			if !taken {
				holder[w.Identity()] = i
				continue
			}
			other := r.document.Items[first].ServiceID
			if other != item.ServiceID { // one service twice in a wave is refused by the document's own rules
				r.refuse(i, keyServiceID, "services %s (item %d) and %s (item %d) both change %s in one wave: "+
					"give the items different priorities, or narrow one by deployLabel", other, first+1, item.ServiceID,
					i+1, w)
			}
		}
	}
}

func (r *resolver) problems(id ServiceID) string {
	text, looked := r.invalid[id]
	if !looked {
		service := r.services[id]
		wrong := service.Validate()
		if len(wrong) == 0 {
			_, wrong = strategy.ReadService(service)
		}
		text = strings.Join(phrase.Each(wrong, strictyaml.FieldError.Error), "; ")
		r.invalid[id] = text
	}
	return text
}

func (r *resolver) refuse(i int, key, format string, args ...any) {
	r.found.Refuse(i+1, itemField(i, key), format, args...)
}

func labelChoice(labels []string) string {
	if len(labels) == 1 {
		return "the label " + labels[0]
	}
	return "any of the labels " + strings.Join(labels, ", ")
}

// labelsOf describes the available labels.
func labelsOf(service catalog.Service) string {
	var labels []string
	for _, w := range service.Workloads {
		for _, label := range w.Labels {
			if !slices.Contains(labels, label) {
				labels = append(labels, label)
			}
		}
	}
	if len(labels) == 0 {
		return "none of them carries any label"
	}
	return fmt.Sprintf("its workloads carry %s", strings.Join(labels, ", "))
}
