package player

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// file is a file of a volume with the content of an object.
type file struct {
	text []byte
	mode int32
}

// volume returns the folder of a volume.
func (p *play) volume(name string) string { return filepath.Join(p.folder, "volumes", name) }

// makeVolumes creates the volumes that do not exist yet.
func (p *play) makeVolumes() error {
	for i := range p.pod.Spec.Volumes {
		v := &p.pod.Spec.Volumes[i]
		if _, err := os.Stat(p.volume(v.Name)); err == nil {
			continue
		}
		files, err := p.files(v)
		if err == nil {
			err = p.fill(p.volume(v.Name), files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return nil
}

// files returns the initial content of a volume.
func (p *play) files(v *corev1.Volume) (map[string]file, error) {
	switch {
	case v.EmptyDir != nil:
		return nil, nil
	case v.Secret != nil:
		data, err := p.secret(v.Secret.SecretName, v.Secret.Optional)
		return selectKeys("Secret "+v.Secret.SecretName, data, v.Secret.Items, v.Secret.DefaultMode, v.Secret.Optional,
			err)
	case v.ConfigMap != nil:
		data, err := p.configMap(v.ConfigMap.Name, v.ConfigMap.Optional)
		return selectKeys("ConfigMap "+v.ConfigMap.Name, data, v.ConfigMap.Items, v.ConfigMap.DefaultMode,
			v.ConfigMap.Optional, err)
	case v.DownwardAPI != nil:
		return p.fields(v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		all := map[string]file{}
		for i := range v.Projected.Sources {
			files, err := p.projected(&v.Projected.Sources[i], v.Projected.DefaultMode)
			if err != nil {
				return nil, err
			}
			for path, f := range files {
				all[path] = f
			}
		}
		return all, nil
	default:
		return nil, fmt.Errorf("the player does not support volumes of this kind")
	}
}

func (p *play) projected(s *corev1.VolumeProjection, mode *int32) (map[string]file, error) {
	switch {
	case s.Secret != nil:
		data, err := p.secret(s.Secret.Name, s.Secret.Optional)
		return selectKeys("Secret "+s.Secret.Name, data, s.Secret.Items, mode, s.Secret.Optional, err)
	case s.ConfigMap != nil:
		data, err := p.configMap(s.ConfigMap.Name, s.ConfigMap.Optional)
		return selectKeys("ConfigMap "+s.ConfigMap.Name, data, s.ConfigMap.Items, mode, s.ConfigMap.Optional, err)
	case s.DownwardAPI != nil:
		return p.fields(s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		return p.token(s.ServiceAccountToken, mode)
	default:
		return nil, fmt.Errorf("the player does not support projected sources of this kind")
	}
}

// selectKeys returns all keys of an object, or the requested ones.
func selectKeys(of string, data map[string][]byte, items []corev1.KeyToPath, mode *int32, optional *bool,
	err error) (map[string]file, error) {
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	for key, text := range data {
		if len(items) == 0 {
			files[key] = file{text: text, mode: modeOf(mode)}
		}
	}
	for _, item := range items {
		text, found := data[item.Key]
		switch {
		case found:
			files[item.Path] = file{text: text, mode: modeOf(item.Mode, mode)}
		case !isTrue(optional):
			return nil, fmt.Errorf("%s has no key %s", of, item.Key)
		}
	}
	return files, nil
}

func modeOf(modes ...*int32) int32 {
	for _, m := range modes {
		if m != nil {
			return *m
		}
	}
	return corev1.SecretVolumeSourceDefaultMode
}

func (p *play) fields(items []corev1.DownwardAPIVolumeFile, mode *int32) (map[string]file, error) {
	files := map[string]file{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("the player supports only fieldRef in downwardAPI volumes: %s has another source",
				item.Path)
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = file{text: []byte(value), mode: modeOf(item.Mode, mode)}
	}
	return files, nil
}

// token returns a token for the pod's ServiceAccount that is bound to the pod.
func (p *play) token(of *corev1.ServiceAccountTokenProjection, mode *int32) (map[string]file, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: of.ExpirationSeconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.pod.Name,
			UID: p.pod.UID}}}
	if of.Audience != "" {
		request.Spec.Audiences = []string{of.Audience}
	}
	answer, err := p.kube.CoreV1().ServiceAccounts(p.pod.Namespace).CreateToken(p.ctx, p.pod.Spec.ServiceAccountName,
		request, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return map[string]file{of.Path: {text: []byte(answer.Status.Token), mode: modeOf(mode)}}, nil
}

// fill creates a volume's folder. As with a kubelet, the files of objects are links: the folder contains `..data` and a
// link for each key.
func (p *play) fill(folder string, files map[string]file) error {
	made := folder + ".partial" // an existing folder is complete
	if err := os.RemoveAll(made); err != nil {
		return err
	}
	if err := os.MkdirAll(made, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(made, 0o777); err != nil {
		return err
	}
	const version = "..1"
	for path, f := range files {
		if err := p.writeFile(filepath.Join(made, version, path), f); err != nil {
			return err
		}
		top, _, _ := strings.Cut(path, "/")
		if err := os.Symlink(filepath.Join("..data", top), filepath.Join(made, top)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if len(files) > 0 {
		if err := os.Symlink(version, filepath.Join(made, "..data")); err != nil {
			return err
		}
	}
	return os.Rename(made, folder)
}

// writeFile writes one file. A pod with an fsGroup can read it regardless of its mode.
func (p *play) writeFile(path string, f file) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, f.text, 0o600); err != nil {
		return err
	}
	mode := os.FileMode(f.mode)
	if security := p.pod.Spec.SecurityContext; security != nil && security.FSGroup != nil {
		mode |= 0o440
		if err := os.Chown(path, 0, int(*security.FSGroup)); err != nil {
			return err
		}
	}
	return os.Chmod(path, mode)
}

// mounts returns the volume mounts of a container.
func (p *play) mounts(c *corev1.Container) ([]mount, error) {
	var mounts []mount
	made := map[string]bool{}
	for _, v := range p.pod.Spec.Volumes {
		made[v.Name] = v.EmptyDir != nil
	}
	for _, m := range c.VolumeMounts {
		if m.SubPathExpr != "" {
			return nil, fmt.Errorf("container %s mounts %s by subPathExpr, which the player does not support", c.Name,
				m.Name)
		}
		from, err := resolveSubPath(p.volume(m.Name), m.SubPath)
		if err != nil {
			return nil, fmt.Errorf("container %s: volume %s: %w", c.Name, m.Name, err)
		}
		mounts = append(mounts, mount{from: from, to: m.MountPath, readOnly: m.ReadOnly || !made[m.Name]})
	}
	return mounts, nil
}

// resolveSubPath returns the path of a subPath in a volume; a missing one is created as a folder. A link that leads out
// of the volume is an error: the pod's own processes write there, but the machine would make the mount.
func resolveSubPath(volume, subPath string) (string, error) {
	if subPath == "" {
		return volume, nil
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	_, err = root.Stat(subPath)
	if os.IsNotExist(err) {
		if err = root.MkdirAll(subPath, 0o755); err == nil {
			err = root.Chmod(subPath, 0o777)
		}
	}
	return filepath.Join(volume, subPath), err
}
