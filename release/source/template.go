package source

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Names on the pod template of a workload that runs a code package.
const (
	// AnnotationDeployed stands on a pod template, and so on its pods, that a deploy made: the marker of what was deployed.
	AnnotationDeployed = "slipway.io/deployed"
	// AnnotationPackage is the digest of the package, as "sha256:<hex>".
	AnnotationPackage = "slipway.io/package"
	// ContainerFetch is the init container that fetches the package.
	ContainerFetch = "slipway-fetch"
	// VolumePackage holds the package, VolumeCredentials what opens its source.
	VolumePackage     = "slipway-package"
	VolumeCredentials = "slipway-package-credentials"
	// FolderContent is the folder of the volume that holds what was unpacked; it appears once that is complete.
	FolderContent = "content"
	// EnvURLs holds the addresses that the init container tries, one a line, in this order: out of its arguments, for they may have queries.
	EnvURLs = "SLIPWAY_FETCH_URLS"

	mountPackage     = "/slipway-package"
	mountCredentials = "/slipway-package-credentials"
	digestPrefix     = "sha256:"
)

// Fetcher is how the pods of a party fetch packages.
type Fetcher struct {
	// Image is Slipway's own image; "": pods cannot fetch packages.
	Image string
	// Store is the base URL of the party's package store, "" when it has none.
	Store string
	// Allow are the addresses that packages may come from (ParseAllow).
	Allow []string
	// Limits bound a package.
	Limits Limits
}

// StoreURL is where a package store serves the package of a digest, for as long as it has it.
func StoreURL(store, sha256 string) string {
	return strings.TrimRight(store, "/") + "/packages/sha256/" + sha256
}

// storePath is where a store serves packages: the digest is the rest of the path.
var storePath = regexp.MustCompile(`/packages/sha256/([0-9a-f]{64})$`)

// DigestOf is the digest that the URL of a package in a store tells; "" for any other URL, whose bytes may be others every day.
func DigestOf(rawURL string) string {
	if found := storePath.FindStringSubmatch(rawURL); found != nil {
		return found[1]
	}
	return ""
}

// Unfit says why the package cannot be put into a pod template, "" when it can.
func (p Package) Unfit(template map[string]any) string {
	containers := objects(template, "spec", "containers")
	at := slices.IndexFunc(containers, named(p.Container))
	if at < 0 {
		return fmt.Sprintf("it has no container %s, which the catalogue's package.container names: it has %s", p.Container,
			strings.Join(containerNames(template), ", "))
	}
	for _, mount := range objects(containers[at], "volumeMounts") {
		if text(mount, "mountPath") == p.MountPath && text(mount, "name") != VolumePackage {
			return fmt.Sprintf("its container %s mounts volume %s at %s, where the package is to be: take that mount away, or name another "+
				"package.mountPath in the catalogue", p.Container, text(mount, "name"), p.MountPath)
		}
	}
	return ""
}

// StandsIn says whether a pod template is one that the package was put into, and that nobody has changed in what matters since. Where its
// pods fetch it from, and with which image, does not matter.
func (p Package) StandsIn(template map[string]any) bool {
	if marked(template) != p.Marker() || !fetches(template, p.SHA256) {
		return false
	}
	return slices.ContainsFunc(objects(template, "spec", "containers"), func(c map[string]any) bool {
		return text(c, "name") == p.Container && slices.ContainsFunc(objects(c, "volumeMounts"), func(mount map[string]any) bool {
			return text(mount, "name") == VolumePackage && text(mount, "mountPath") == p.MountPath
		})
	})
}

// marked is the marker of what was deployed, "" when nothing was.
func marked(template map[string]any) string {
	annotations, _ := object(template, "metadata")["annotations"].(map[string]any)
	return text(annotations, AnnotationDeployed)
}

// fetches says whether the pods of a template fetch the package of a digest; "": any package.
func fetches(template map[string]any, sha256 string) bool {
	return slices.ContainsFunc(objects(template, "spec", "initContainers"), func(c map[string]any) bool {
		args, _ := c["args"].([]any)
		return text(c, "name") == ContainerFetch && (sha256 == "" || slices.Contains(args, any(sha256)))
	})
}

// removePackage takes a package out of a pod template, whatever the deploy that put it there.
func removePackage(template map[string]any) {
	for _, c := range objects(template, "spec", "containers") {
		without(c, "volumeMounts", VolumePackage)
	}
	spec := ensured(template, "spec")
	without(spec, "volumes", VolumePackage)
	without(spec, "volumes", VolumeCredentials)
	without(spec, "initContainers", ContainerFetch)
	delete(ensured(ensured(template, "metadata"), "annotations"), AnnotationPackage)
}

// Put puts the package into a pod template that it is not unfit for, in place of one that is there: an init container fetches exactly these
// bytes, from the party's store or from rawURL, into a volume of the pod's own.
func (p Package) Put(template map[string]any, from Fetcher, rawURL string) {
	removePackage(template)
	metadata, spec := ensured(template, "metadata"), ensured(template, "spec")
	annotations := ensured(metadata, "annotations")
	annotations[AnnotationDeployed], annotations[AnnotationPackage] = p.Marker(), digestPrefix+p.SHA256

	containers := objects(template, "spec", "containers")
	target := containers[slices.IndexFunc(containers, named(p.Container))]
	add(target, "volumeMounts", map[string]any{"name": VolumePackage, "mountPath": p.MountPath, "subPath": FolderContent})
	add(spec, "volumes", map[string]any{"name": VolumePackage, "emptyDir": map[string]any{}})
	if p.Credentials != "" {
		// Optional: once the store has the package, pods start without the Secret.
		add(spec, "volumes", map[string]any{"name": VolumeCredentials, "secret": map[string]any{"secretName": p.Credentials, "optional": true}})
	}
	others, _ := spec["initContainers"].([]any)
	spec["initContainers"] = append([]any{p.container(target, from, rawURL)}, others...)
}

// container is the init container. It is given what the container that gets the package is given, so that it needs no more of a quota, and
// runs as the same user, so that this one can read every file.
func (p Package) container(target map[string]any, from Fetcher, rawURL string) map[string]any {
	urls := []string{rawURL}
	args := []any{"fetch", "--sha256", p.SHA256, "--to", mountPackage,
		"--max-bytes", strconv.FormatInt(from.Limits.Bytes, 10), "--max-unpacked-bytes", strconv.FormatInt(from.Limits.UnpackedBytes, 10),
		"--max-entries", strconv.Itoa(from.Limits.Entries)}
	if from.Store != "" {
		urls = []string{StoreURL(from.Store, p.SHA256), rawURL}
		args = append(args, "--trusted", Literal(from.Store))
	}
	for _, entry := range from.Allow {
		args = append(args, "--allow", Literal(entry))
	}
	if p.File != "" {
		args = append(args, "--file", Literal(p.File))
	}
	mounts := []any{map[string]any{"name": VolumePackage, "mountPath": mountPackage}}
	if p.Credentials != "" {
		args = append(args, "--credentials", mountCredentials)
		mounts = append(mounts, map[string]any{"name": VolumeCredentials, "mountPath": mountCredentials, "readOnly": true})
	}
	c := map[string]any{"name": ContainerFetch, "image": from.Image, "args": args, "volumeMounts": mounts,
		"env":             []any{map[string]any{"name": EnvURLs, "value": Literal(strings.Join(urls, "\n"))}},
		"securityContext": securityContext(object(target, "securityContext"))}
	if resources := object(target, "resources"); len(resources) > 0 {
		c["resources"] = resources
	}
	return c
}

// Literal keeps Kubernetes from expanding references to variables in a text.
func Literal(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

// securityContext is the least that the init container needs, as the user of the container that gets the package.
func securityContext(own map[string]any) map[string]any {
	context := map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities": map[string]any{"drop": []any{"ALL"}}, "seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	for _, field := range []string{"runAsUser", "runAsGroup", "runAsNonRoot"} {
		if value, set := own[field]; set {
			context[field] = value
		}
	}
	return context
}

// Packaged is the digest of the package that a pod template runs, "" when it runs none.
func Packaged(annotations map[string]string) string {
	digest, _ := strings.CutPrefix(annotations[AnnotationPackage], digestPrefix)
	return digest
}

func named(name string) func(map[string]any) bool {
	return func(o map[string]any) bool { return text(o, "name") == name }
}

func text(o map[string]any, field string) string {
	value, _ := o[field].(string)
	return value
}

func object(o map[string]any, path ...string) map[string]any {
	for _, field := range path {
		o, _ = o[field].(map[string]any)
	}
	return o
}

// objects are the objects of a list; whatever else is in it is left out.
func objects(o map[string]any, path ...string) []map[string]any {
	last := len(path) - 1
	list, _ := object(o, path[:last]...)[path[last]].([]any)
	var out []map[string]any
	for _, entry := range list {
		if value, ok := entry.(map[string]any); ok {
			out = append(out, value)
		}
	}
	return out
}

func ensured(o map[string]any, field string) map[string]any {
	value, ok := o[field].(map[string]any)
	if !ok {
		value = map[string]any{}
		o[field] = value
	}
	return value
}

func add(o map[string]any, field string, entry map[string]any) {
	list, _ := o[field].([]any)
	o[field] = append(list, entry)
}

// without takes the entries of a name out of a list.
func without(o map[string]any, field, name string) {
	list, ok := o[field].([]any)
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(entry any) bool {
		value, _ := entry.(map[string]any)
		return text(value, "name") == name
	})
	if o[field] = list; len(list) == 0 {
		delete(o, field)
	}
}
