package kuscia

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"slipway.io/slipway/api/kuscia/kusciapb"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// AppImageRequest is the request that registers an AppImage. lost are the paths of what the image says and no request can say, such as
// the number of a port: who sends the request all the same registers another AppImage.
func AppImageRequest(image *kuscia.AppImage) (r *kusciapb.CreateAppImageRequest, lost []string) {
	data := appImageData(image)
	r = &kusciapb.CreateAppImageRequest{Name: data.GetName(), Image: data.GetImage(), ConfigTemplates: data.GetConfigTemplates(),
		DeployTemplates: data.GetDeployTemplates()}
	registered := kuscia.AppImageSpec{Image: imageInfo(r.GetImage()), ConfigTemplates: r.GetConfigTemplates()}
	if err := setTemplates(&registered, r.GetDeployTemplates()); err != nil {
		return r, []string{"spec.deployTemplates"}
	}
	return r, differences("spec", plain(image.Spec), plain(registered))
}

func plain(value any) (generic any) {
	text, err := json.Marshal(value)
	if err != nil || json.Unmarshal(text, &generic) != nil {
		return nil
	}
	return generic
}

// differences are the paths at which two documents are not the same, in order. What one of them has not at all is one path.
func differences(path string, a, b any) []string {
	var found []string
	switch left := a.(type) {
	case map[string]any:
		right, both := b.(map[string]any)
		if !both {
			return []string{path}
		}
		keys := maps.Clone(left)
		maps.Copy(keys, right)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			found = append(found, differences(path+"."+key, left[key], right[key])...)
		}
	case []any:
		right, _ := b.([]any)
		if len(left) != len(right) {
			return []string{path}
		}
		for i := range left {
			found = append(found, differences(fmt.Sprintf("%s[%d]", path, i), left[i], right[i])...)
		}
	default:
		if !reflect.DeepEqual(a, b) {
			found = []string{path}
		}
	}
	return found
}
