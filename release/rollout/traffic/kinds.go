package traffic

// pathSpec is the place of canary Ingresses and custom objects that a release owns.
const pathSpec = "/spec"

// Kind is a kind of object that a release borrows or creates in order to move traffic.
type Kind struct {
	// Group and Resource name it as the API server does, in any version.
	Group, Resource string
	// Pointers are the JSON Pointers of the fields that a release writes.
	Pointers []string
	// Metadata is true if it also writes labels or annotations that a script chooses.
	Metadata bool
}

// Kinds returns the kinds that every cluster may have. For other custom objects see CustomKind.
func Kinds() []Kind {
	return []Kind{
		{Resource: "services", Pointers: []string{pathSelector}},
		{Group: "networking.k8s.io", Resource: "ingresses", Pointers: []string{pathSpec}, Metadata: true},
		{Group: "gateway.networking.k8s.io", Resource: "httproutes", Pointers: []string{pathRules}},
		CustomKind(GroupIstio, "virtualservices"), CustomKind(GroupIstio, "destinationrules"),
	}
}

// CustomKind returns a kind that a script changes.
func CustomKind(group, resource string) Kind {
	return Kind{Group: group, Resource: resource, Pointers: []string{pathSpec}, Metadata: true}
}
