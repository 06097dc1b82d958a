package source

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"slipway.io/slipway/release/jsonpatch"
)

// Names in the pod template of a workload that runs a code package.
const (
	// AnnotationDeployed is set on a pod template made by a deploy, and so on its pods: the marker of what was
	// deployed.
	AnnotationDeployed = "slipway.io/deployed"
	// AnnotationPackage is the digest of the package, as "sha256:<hex>".
	AnnotationPackage = "slipway.io/package"
	// ContainerFetch is the init container that fetches the package.
	ContainerFetch = "slipway-fetch"
	// VolumePackage is the volume with the package, VolumeCredentials the one with its source's credentials.
	VolumePackage     = "slipway-package"
	VolumeCredentials = "slipway-package-credentials"
	// FolderContent is the folder of the volume with the unpacked files; it appears only once unpacking is complete.
	FolderContent = "content"
	// EnvURLs lists the addresses that the init container tries, one per line, in this order. It is not an argument
	// because addresses may have secret queries.
	EnvURLs = "SLIPWAY_FETCH_URLS"

	mountPackage     = "/slipway-package"
	mountCredentials = "/slipway-package-credentials"
	digestPrefix     = "sha256:"
)

// Fetcher describes how the pods of a party fetch packages.
type Fetcher struct {
	// Image is Slipway's own image; "": pods cannot fetch packages.
	Image string
	// Store is the base URL of the party's package store, "" if it has none.
	Store string
	// StoreCA are the CAs of the store's certificate in PEM form; "": those of the system.
	StoreCA string
	// Allow lists the addresses that packages may come from (ParseAllow).
	Allow []string
	// Limits bound a package.
	Limits Limits
}

// StoreURL returns the URL at which a package store serves the package of a digest, as long as it has it.
func StoreURL(store, sha256 string) string {
	return strings.TrimRight(store, "/") + "/packages/sha256/" + sha256
}

// storePath matches the path at which a store serves packages, and captures the digest.
var storePath = regexp.MustCompile(`/packages/sha256/([0-9a-f]{64})$`)

// DigestOf returns the digest in the URL of a package in a store; "" for any other URL, whose content may change at any
// time.
func DigestOf(rawURL string) string {
	if found := storePath.FindStringSubmatch(rawURL); found != nil {
		return found[1]
	}
	return ""
}

// UnfitReason returns why the package cannot be put into a pod template, "" if it can.
func (p Package) UnfitReason(template map[string]any) string {
	containers := jsonpatch.DigObjects(template, "spec", "containers")
	at := slices.IndexFunc(containers, named(p.Container))
	if at < 0 {
		return fmt.Sprintf("it has no container %s, which the catalogue's package.container names: it has %s",
			p.Container, strings.Join(containerNames(template), ", "))
	}
	for _, mount := range jsonpatch.DigObjects(containers[at], "volumeMounts") {
		if jsonpatch.DigString(mount, "mountPath") == p.MountPath && jsonpatch.DigString(mount, "name") != VolumePackage {
			return fmt.Sprintf("its container %s mounts volume %s at %s, where the package must be: remove that "+
				"mount, or name another "+
				"package.mountPath in the catalogue", p.Container, jsonpatch.DigString(mount, "name"), p.MountPath)
		}
	}
	return ""
}

// PresentIn reports whether the package was put into a pod template and no relevant field of it has changed since.
// Where its pods fetch it from, and with which image, is not relevant.
func (p Package) PresentIn(template map[string]any) bool {
	if marked(template) != p.Marker() || !fetches(template, p.SHA256) {
		return false
	}
	return slices.ContainsFunc(jsonpatch.DigObjects(template, "spec", "containers"), func(c map[string]any) bool {
		return jsonpatch.DigString(c, "name") == p.Container && slices.ContainsFunc(jsonpatch.DigObjects(c, "volumeMounts"),
			func(mount map[string]any) bool {
				return jsonpatch.DigString(mount, "name") == VolumePackage && jsonpatch.DigString(mount, "mountPath") == p.MountPath
			})
	})
}

// marked returns the marker of what was deployed, "" if nothing was.
func marked(template map[string]any) string {
	return jsonpatch.DigString(template, "metadata", "annotations", AnnotationDeployed)
}

// fetches reports whether the pods of a template fetch the package of a digest; "": any package.
func fetches(template map[string]any, sha256 string) bool {
	return slices.ContainsFunc(jsonpatch.DigObjects(template, "spec", "initContainers"), func(c map[string]any) bool {
		args, _ := c["args"].([]any)
		return jsonpatch.DigString(c, "name") == ContainerFetch && (sha256 == "" || slices.Contains(args, any(sha256)))
	})
}

// removePackage removes a package from a pod template, regardless of which deploy put it there.
func removePackage(template map[string]any) {
	for _, c := range jsonpatch.DigObjects(template, "spec", "containers") {
		without(c, "volumeMounts", VolumePackage)
	}
	spec := jsonpatch.DigObject(template, "spec")
	without(spec, "volumes", VolumePackage)
	without(spec, "volumes", VolumeCredentials)
	without(spec, "initContainers", ContainerFetch)
	jsonpatch.Drop(template, jsonpatch.Annotation(AnnotationPackage))
}

// Put puts the package into a pod template for which UnfitReason is "", and replaces an existing one: an init container
// fetches exactly these bytes, from the party's store or from rawURL, into a volume of the pod.
func (p Package) Put(template map[string]any, from Fetcher, rawURL string) {
	removePackage(template)
	jsonpatch.Put(template, jsonpatch.Annotation(AnnotationDeployed), p.Marker())
	jsonpatch.Put(template, jsonpatch.Annotation(AnnotationPackage), digestPrefix+p.SHA256)
	spec := jsonpatch.DigObject(template, "spec")
	containers := jsonpatch.DigObjects(template, "spec", "containers")
	target := containers[slices.IndexFunc(containers, named(p.Container))]
	add(target, "volumeMounts", map[string]any{"name": VolumePackage, "mountPath": p.MountPath,
		"subPath": FolderContent})
	add(spec, "volumes", map[string]any{"name": VolumePackage, "emptyDir": map[string]any{}})
	if p.Credentials != "" {
		// Optional: once the store has the package, pods start without the Secret.
		add(spec, "volumes", map[string]any{"name": VolumeCredentials,
			"secret": map[string]any{"secretName": p.Credentials, "optional": true}})
	}
	others, _ := spec["initContainers"].([]any)
	spec["initContainers"] = append([]any{p.container(target, from, rawURL)}, others...)
}

// container returns the init container. It has the same resources as the container that gets the package, so that it
// needs no additional quota, and runs as the same user, so that this container can read every file.
func (p Package) container(target map[string]any, from Fetcher, rawURL string) map[string]any {
	urls := []string{rawURL}
	args := []any{"fetch", "--sha256", p.SHA256, "--to", mountPackage, "--max-bytes",
		strconv.FormatInt(from.Limits.Bytes, 10), "--max-unpacked-bytes", strconv.FormatInt(from.Limits.UnpackedBytes,
			10), "--max-entries", strconv.Itoa(from.Limits.Entries)}
	if from.Store != "" {
		urls = []string{StoreURL(from.Store, p.SHA256), rawURL}
		args = append(args, "--trusted", Literal(from.Store))
		if from.StoreCA != "" {
			// The CAs are in the template because pods may start when no worker is left, and a volume would have to be
			// made in each namespace.
			args = append(args, "--trusted-ca", Literal(from.StoreCA))
		}
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
		mounts = append(mounts, map[string]any{"name": VolumeCredentials, "mountPath": mountCredentials,
			"readOnly": true})
	}
	c := map[string]any{"name": ContainerFetch, "image": from.Image, "args": args, "volumeMounts": mounts,
		"env":             []any{map[string]any{"name": EnvURLs, "value": Literal(strings.Join(urls, "\n"))}},
		"securityContext": securityContext(jsonpatch.DigObject(target, "securityContext"))}
	if resources := jsonpatch.DigObject(target, "resources"); len(resources) > 0 {
		c["resources"] = resources
	}
	return c
}

// Literal escapes a text so that Kubernetes does not expand references to variables in it.
func Literal(text string) string { return strings.ReplaceAll(text, "$(", "$$(") }

// securityContext returns the minimum that the init container needs, with the user of the container that gets the
// package.
func securityContext(own map[string]any) map[string]any {
	context := map[string]any{"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
		"capabilities":   map[string]any{"drop": []any{"ALL"}},
		"seccompProfile": map[string]any{"type": "RuntimeDefault"}}
	for _, field := range []string{"runAsUser", "runAsGroup", "runAsNonRoot"} {
		if value, set := own[field]; set {
			context[field] = value
		}
	}
	return context
}

// PackageDigest returns the digest of the package that a pod template runs, "" if it runs none.
func PackageDigest(annotations map[string]string) string {
	digest, _ := strings.CutPrefix(annotations[AnnotationPackage], digestPrefix)
	return digest
}

func named(name string) func(map[string]any) bool {
	return func(o map[string]any) bool { return jsonpatch.DigString(o, "name") == name }
}

func add(o map[string]any, field string, entry map[string]any) {
	list, _ := o[field].([]any)
	o[field] = append(list, entry)
}

// without removes the entries of a name from a list.
func without(o map[string]any, field, name string) {
	list, ok := o[field].([]any)
	if !ok {
		return
	}
	list = slices.DeleteFunc(list, func(entry any) bool {
		value, _ := entry.(map[string]any)
		return jsonpatch.DigString(value, "name") == name
	})
	if o[field] = list; len(list) == 0 {
		delete(o, field)
	}
}
