package kuscia

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/api/equality"

	"slipway.io/slipway/api/kuscia/kusciapb"
	"slipway.io/slipway/release/failure"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// fullAppImage is an AppImage with all fields that a message cannot express.
const fullAppImage = `
image: {name: registry.test/app, tag: v1, id: abc, sign: def}
configTemplates: {a.conf: one}
deployTemplates:
- name: web
  role: server,client
  networkPolicy: {ingresses: [{from: {roles: [client]}, ports: [{port: service}]}]}
  spec:
    affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: {matchExpressions: [{key: disk, operator: Exists}]}}]}}
    restartPolicy: Always
    containers:
    - name: main
      command: [run]
      ports:
      - {name: service, port: 8080, scope: Cluster}
      - {name: admin, port: 8081, scope: Local}
      env:
      - {name: PLAIN, value: x}
      - {name: SECRET, valueFrom: {secretKeyRef: {name: s, key: k}}}
      envFrom:
      - {prefix: P_, configMapRef: {name: c, optional: true}}
      - {secretRef: {name: s, optional: true}}
      resources: {limits: {cpu: "1", memory: 1Gi, example.com/gpu: "1"}, requests: {cpu: 100m}}
      livenessProbe: {httpGet: {path: /live, port: 8081, httpHeaders: [{name: H, value: v}]}, periodSeconds: 5}
      readinessProbe: {tcpSocket: {port: 8080}, terminationGracePeriodSeconds: 9}
      startupProbe: {grpc: {port: 8082, service: up}}
      metricProbe: {path: /metrics, port: admin}
      imagePullPolicy: Always
      securityContext: {privileged: true}
- name: worker
  replicas: 3
  spec:
    containers: [{name: main, livenessProbe: {exec: {command: [ok]}}}]
`

func image(t *testing.T, m *memory, name string) kuscia.AppImageSpec {
	t.Helper()
	require.Contains(t, m.images, name)
	return m.images[name].Spec
}

// shown returns the AppImage as a client reads it, through JSON.
func shown(t *testing.T, m *memory, name string) *kusciapb.QueryAppImageResponseData {
	t.Helper()
	answer, err := m.service().QueryAppImage(t.Context(), &kusciapb.QueryAppImageRequest{Name: name})
	require.NoError(t, err)
	raw, err := encodeJSON(answer)
	require.NoError(t, err)
	var back kusciapb.QueryAppImageResponse
	require.NoError(t, decode(typeJSON, raw, &back))
	return back.GetData()
}

func updateImage(t *testing.T, m *memory, r *kusciapb.UpdateAppImageRequest) *kusciapb.Status {
	t.Helper()
	answer, err := m.service().UpdateAppImage(t.Context(), r)
	require.NoError(t, err)
	return answer.GetStatus()
}

func TestUpdateAppImage_ChangesNothing_WhenSentAsRead(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.image(t, "app", fullAppImage)
	before := m.images["app"].DeepCopy()
	data := shown(t, m, "app")
	require.Equal(t, "8081", data.GetDeployTemplates()[0].GetContainers()[0].GetLivenessProbe().GetHttpGet().GetPort(),
		"a numeric port is shown")
	require.Equal(t, "success", updateImage(t, m, &kusciapb.UpdateAppImageRequest{Name: "app", Image: data.GetImage(),
		ConfigTemplates: data.GetConfigTemplates(),
		DeployTemplates: data.GetDeployTemplates()}).GetMessage())
	before.ResourceVersion = m.images["app"].ResourceVersion
	require.True(t, equality.Semantic.DeepEqual(before.Spec, m.images["app"].Spec),
		"no field is lost, not even a port number")
}

func TestUpdateAppImage_KeepsFieldsThatMessagesLack(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.image(t, "app", fullAppImage)
	data := shown(t, m, "app")
	web := data.GetDeployTemplates()[0]
	main := web.GetContainers()[0]
	main.Command, main.Env[0].Value, main.Resources.Limits.Cpu = []string{"walk"}, "y", "2"
	main.Ports = []*kusciapb.ContainerPort{{Name: "extra", Scope: "Local", Protocol: "GRPC"}, main.GetPorts()[0]}
	main.LivenessProbe.HttpGet.Port, main.ReadinessProbe.TcpSocket.Port = "", "" // as Kuscia returns them
	main.StartupProbe = nil
	web.Replicas = 4
	web.Containers = append(web.Containers, &kusciapb.Container{Name: "new",
		LivenessProbe: &kusciapb.Probe{HttpGet: &kusciapb.HTTPGetAction{Port: "8090"}}})
	require.Equal(t, "success", updateImage(t, m, &kusciapb.UpdateAppImageRequest{Name: "app",
		Image:           &kusciapb.AppImageInfo{Name: "registry.test/app", Tag: "v2"},
		DeployTemplates: []*kusciapb.DeployTemplate{web}}).GetMessage())

	spec := image(t, m, "app")
	require.Equal(t, kuscia.AppImageInfo{Name: "registry.test/app", Tag: "v2"}, spec.Image,
		"the image is replaced as a whole")
	require.Equal(t, map[string]string{"a.conf": "one"}, spec.ConfigTemplates,
		"config templates missing in the request are kept")
	require.Len(t, spec.DeployTemplates, 1, "deploy templates in the request replace all stored ones")
	template := spec.DeployTemplates[0]
	require.EqualValues(t, 4, *template.Replicas)
	require.Len(t, template.NetworkPolicy.Ingresses, 1)
	require.NotNil(t, template.Spec.Affinity)
	c := template.Spec.Containers[0]
	require.Equal(t, []string{"walk"}, c.Command)
	require.Equal(t, []kuscia.ContainerPort{{Name: "extra", Scope: "Local", Protocol: "GRPC"},
		{Name: "service", Port: 8080, Scope: "Cluster"}}, c.Ports, "a port that keeps its name keeps its number")
	require.Equal(t, "y", c.Env[0].Value)
	require.NotNil(t, c.Env[1].ValueFrom, "valueFrom is kept")
	require.True(t, *c.EnvFrom[0].ConfigMapRef.Optional)
	require.True(t, *c.EnvFrom[1].SecretRef.Optional)
	require.Equal(t, "2", c.Resources.Limits.Cpu().String())
	gpu := c.Resources.Limits["example.com/gpu"]
	require.Equal(t, "1", gpu.String(), "resources other than CPU and memory are kept")
	require.Equal(t, 8081, c.LivenessProbe.HTTPGet.Port.IntValue())
	require.Equal(t, 8080, c.ReadinessProbe.TCPSocket.Port.IntValue())
	require.Nil(t, c.StartupProbe, "a probe can be removed")
	require.NotNil(t, c.MetricProbe)
	require.True(t, *c.SecurityContext.Privileged)
	require.Equal(t, 8090, template.Spec.Containers[1].LivenessProbe.HTTPGet.Port.IntValue(),
		"a numeric port becomes a number")
}

func TestAppImage_ReplicasStayUnset_WhenRequestHasNone(t *testing.T) {
	t.Parallel()
	m := newMemory()
	r := &kusciapb.CreateAppImageRequest{Name: "app", Image: &kusciapb.AppImageInfo{Name: "app", Tag: "v1"},
		DeployTemplates: []*kusciapb.DeployTemplate{{Name: "web", Containers: []*kusciapb.Container{{Name: "c"}}}}}
	answer, err := m.service().CreateAppImage(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, "success", answer.GetStatus().GetMessage())
	require.Nil(t, image(t, m, "app").DeployTemplates[0].Replicas,
		"Kuscia stores 0, and every serving of it has no pod")
	three := int32(3)
	m.images["app"].Spec.DeployTemplates[0].Replicas = &three
	require.Zero(t, updateImage(t, m, &kusciapb.UpdateAppImageRequest{Name: "app", Image: r.GetImage(),
		DeployTemplates: r.GetDeployTemplates()}).GetCode())
	require.EqualValues(t, 3, *image(t, m, "app").DeployTemplates[0].Replicas)
}

func TestAppImageRefusals(t *testing.T) {
	t.Parallel()
	good := `"image":{"name":"app"},"deploy_templates":[{"name":"t","containers":[{"name":"c"}]}]`
	const at = "/api/v1/appimage/"
	cases := map[string]struct {
		reason, path, body string
		code               int32
		message            string
	}{
		"CreateNoName":  {"The name is checked first.", "create", `{}`, 11100, "appimage name can not be empty"},
		"CreateNoImage": {"Then the image.", "create", `{"name":"A_"}`, 11100, "base image name can not be empty"},
		"CreateNoTemplates": {"Then the templates.", "create", `{"name":"A_","image":{"name":"app"}}`, 11100,
			"deploy templates can not be empty"},
		"CreateNoTemplate": {"Each with a name.", "create",
			`{"name":"a","image":{"name":"app"},"deploy_templates":[{}]}`, 11100,
			"deploy template name can not be empty"},
		"CreateNoContainers": {"And containers.", "create",
			`{"name":"a","image":{"name":"app"},"deploy_templates":[{"name":"t"}]}`, 11100,
			"containers can not be empty"},
		"CreateNegative": {"And a legal replica count.", "create",
			`{"name":"a","image":{"name":"app"},"deploy_templates":[{"name":"t","replicas":-1,"containers":[{}]}]}`,
			11100, "replicas can not be less than 0"},
		"CreateNoContainer": {"Containers have names.", "create",
			`{"name":"a","image":{"name":"app"},"deploy_templates":[{"name":"t","containers":[{}]}]}`, 11100,
			"container name can not be empty"},
		"CreateBadName": {"The format of the name is checked last.", "create", `{"name":"A_",` + good + `}`, 11100,
			`Field "appimage_id" is invalid, invalid value: "A_": regex used for validation is ` + nameRule},
		"CreateBadQuantity": {"The error names the field.", "create",
			`{"name":"a","image":{"name":"app"},"deploy_templates":[{"name":"t","containers":[{"name":"c","resources":{"limits":{"memory":"x"}}}]}]}`, 13100, "can't parse limit memory x to resource quantity, " + quantityRule},
		"CreateExists": {"An AppImage of that name exists.", "create", `{"name":"app",` + good + `}`, 13106,
			`appimages.kuscia.secretflow "app" already exists`},
		"UpdateNoName":  {"As at create.", "update", `{}`, 11100, "appimage name can not be empty"},
		"UpdateNoImage": {"As at create.", "update", `{"name":"app"}`, 11100, "base image name can not be empty"},
		"UpdateBadTemplate": {"Templates in the request are checked.", "update",
			`{"name":"app","image":{"name":"x"},"deploy_templates":[{}]}`, 11100,
			"deploy template name can not be empty"},
		"UpdateMissing": {"This error has its own code.", "update", `{"name":"nope",` + good + `}`, 13105,
			`appimages.kuscia.secretflow "nope" not found`},
		"UpdateOddName": {"No object can have the name.", "update", `{"name":"A_",` + good + `}`, 13105,
			`appimages.kuscia.secretflow "A_" not found`},
		"UpdateBadQuantity": {"With the code of the operation.", "update",
			`{"name":"app","image":{"name":"x"},"deploy_templates":[{"name":"t","containers":[{"name":"c","resources":{"requests":{"cpu":"x"}}}]}]}`, 13102, "can't parse request cpu x to resource quantity, " + quantityRule},
		"DeleteNoName": {"As at create.", "delete", `{}`, 11100, "appimage name can not be empty"},
		"DeleteMissing": {"Here the code is that of the operation.", "delete", `{"name":"nope"}`, 13103,
			`appimages.kuscia.secretflow "nope" not found`},
		"DeleteOddName": {"No object can have the name.", "delete", `{"name":"A_"}`, 13103,
			`appimages.kuscia.secretflow "A_" not found`},
		"QueryNoName": {"As at create.", "query", `{}`, 11100, "appimage name can not be empty"},
		"QueryMissing": {"This error has its own code.", "query", `{"name":"nope"}`, 13105,
			`appimages.kuscia.secretflow "nope" not found`},
		"BatchNone": {"The list of names is empty.", "batchQuery", `{}`, 11100, "names can not be empty"},
		"BatchEmpty": {"The error contains the index.", "batchQuery", `{"names":["app",""]}`, 11100,
			"name can not be empty on index 1"},
		"BatchMissing": {"A missing AppImage fails the whole request.", "batchQuery", `{"names":["app","nope"]}`,
			13105, `can't get appimage for nope, err: appimages.kuscia.secretflow "nope" not found`},
		"ListNegative": {"There is no such page.", "list", `{"page_size":-1}`, 11100,
			"page size can not be less than 0"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMemory()
			m.image(t, "app", fullAppImage)
			var answer kusciapb.CreateAppImageResponse
			body := post(handler(m), at+c.path, c.body).Body.Bytes()
			require.NoError(t, protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(body, &answer))
			require.Equal(t, c.code, answer.GetStatus().GetCode(), "%s %s", c.reason, answer.GetStatus().GetMessage())
			require.Equal(t, c.message, answer.GetStatus().GetMessage(), c.reason)
			require.Zero(t, m.writes, "nothing was changed")
		})
	}
}

func TestAppImageCodes_WhenHomeClusterUnreachable(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.image(t, "app", fullAppImage)
	m.broken = failure.New(failure.Unreachable, "down")
	s := m.service()
	query, err := s.QueryAppImage(t.Context(), &kusciapb.QueryAppImageRequest{Name: "app"})
	require.NoError(t, err)
	require.EqualValues(t, 13101, query.GetStatus().GetCode())
	batch, err := s.BatchQueryAppImage(t.Context(), &kusciapb.BatchQueryAppImageRequest{Names: []string{"app"}})
	require.NoError(t, err)
	require.EqualValues(t, 13104, batch.GetStatus().GetCode())
	require.Equal(t, "can't get appimage for app, err: down", batch.GetStatus().GetMessage())
	list, err := s.ListAppImage(t.Context(), &kusciapb.ListAppImageRequest{})
	require.NoError(t, err)
	require.EqualValues(t, 13107, list.GetStatus().GetCode())
	health, err := s.HealthZ(t.Context(), &kusciapb.HealthRequest{})
	require.NoError(t, err)
	require.Zero(t, health.GetStatus().GetCode())
	require.False(t, health.GetData().GetReady())
}

func TestListAppImage_Pages(t *testing.T) {
	t.Parallel()
	m := newMemory()
	for _, name := range manyDomains(12) {
		m.image(t, name, fullAppImage)
	}
	s := m.service()
	var names []string
	token, pages := "", []int{}
	for {
		page, err := s.ListAppImage(t.Context(), &kusciapb.ListAppImageRequest{PageToken: token})
		require.NoError(t, err)
		pages = append(pages, len(page.GetData().GetAppimageList()))
		for _, one := range page.GetData().GetAppimageList() {
			names = append(names, one.GetName())
		}
		if token = page.GetData().GetNextPageToken(); token == "" {
			break
		}
	}
	require.Equal(t, []int{10, 2}, pages, "a page has ten unless another size is asked for")
	require.Equal(t, manyDomains(12), names)
	batch, err := s.BatchQueryAppImage(t.Context(),
		&kusciapb.BatchQueryAppImageRequest{Names: []string{"party-003", "party-001", "party-003"}})
	require.NoError(t, err)
	require.Len(t, batch.GetData(), 3)
	require.Equal(t, "party-001", batch.GetData()[1].GetName(), "the order is that of the request")
}

func TestUpdateAppImage_Retries_WhenConflict(t *testing.T) {
	t.Parallel()
	m := newMemory()
	m.image(t, "app", fullAppImage)
	m.lostRaces = 2
	r := &kusciapb.UpdateAppImageRequest{Name: "app", Image: &kusciapb.AppImageInfo{Name: "app", Tag: "v9"}}
	require.Equal(t, "success", updateImage(t, m, r).GetMessage())
	require.Equal(t, "v9", image(t, m, "app").Image.Tag)
	require.Len(t, image(t, m, "app").DeployTemplates, 2)
	m.lostRaces = 100
	require.EqualValues(t, 13102, updateImage(t, m, r).GetCode())
	require.True(t, proto.Equal(shown(t, m, "app").GetImage(), &kusciapb.AppImageInfo{Name: "app", Tag: "v9"}))
}
