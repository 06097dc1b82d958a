package plan

import (
	"math"

	"slipway.io/slipway/release/strictyaml"
)

// The document's keys that are named in rules.
const (
	keyComment           = "comment"
	keyItems             = "deployPlanItems"
	keyServiceID         = "serviceId"
	keyPriority          = "priority"
	keyDeployment        = "deployment"
	keyExecMethod        = "containerExecMethod"
	keyDeployLabel       = "deployLabel"
	keyHTTPSrcURI        = "httpSrcUri"
	keyCompileRepoPath   = "compileRepoPath"
	keyCompileRepoBranch = "compileRepoBranch"
)

// itemKeys are the keys of an item, in the order of the source document.
func itemKeys() []string {
	return []string{keyServiceID, keyPriority, keyDeployment, keyExecMethod, keyDeployLabel, keyHTTPSrcURI, keyCompileRepoPath, keyCompileRepoBranch}
}

// Decode reads a plan from YAML or JSON, strictly: every error at once, each with its item, field and line.
// The Document means nothing when there are errors.
func Decode(data []byte) (Document, []Warning, Errors) {
	root, found, ok := strictyaml.Parse(data)
	if !ok {
		return Document{}, nil, found.Sorted()
	}
	d := decodeDocument(root)
	warnings := d.check(found)
	return d, warnings, found.Sorted()
}

func decodeDocument(v strictyaml.Value) Document {
	m := v.Mapping(keyComment, keyItems)
	d := Document{Comment: m.Field(keyComment).FreeText()}
	for i, entry := range m.Field(keyItems).List() {
		d.Items = append(d.Items, decodeItem(entry.OfItem(i+1)))
	}
	return d
}

func decodeItem(v strictyaml.Value) Item {
	m := v.Mapping(itemKeys()...)
	return Item{
		ServiceID:           ServiceID(m.Field(keyServiceID).Name()),
		Priority:            m.Field(keyPriority).Integer(math.MinInt64, math.MaxInt64),
		Deployment:          Operation(m.Field(keyDeployment).Text()),
		ContainerExecMethod: Method(m.Field(keyExecMethod).Text()),
		DeployLabel:         m.Field(keyDeployLabel).Text(),
		HTTPSrcURI:          m.Field(keyHTTPSrcURI).Text(),
		CompileRepoPath:     m.Field(keyCompileRepoPath).Text(),
		CompileRepoBranch:   m.Field(keyCompileRepoBranch).Text(),
	}
}
