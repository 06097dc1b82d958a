package serving_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/instant"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/serving"
)

// seenServing returns a serving of the parties alice and bob at generation 2, which both run with all their pods.
func seenServing(t *testing.T) *kuscia.KusciaDeployment {
	t.Helper()
	now, began := instant.MicroOf(time.Date(2026, 11, 2, 12, 0, 0, 0, time.UTC)),
		metav1.NewTime(time.Date(2026, 11, 2, 11, 0, 0, 0, time.UTC))
	kd := &kuscia.KusciaDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Generation: 2, UID: "uid", CreationTimestamp: began},
		Spec: kuscia.KusciaDeploymentSpec{Initiator: "alice", InputConfig: "new", Parties: []kuscia.Party{
			{DomainID: "alice", AppImageRef: "new-image"}, {DomainID: "bob", Role: "server", AppImageRef: "image"}}},
	}
	former := serving.Version{ID: "one", UID: "uid", Spec: *kd.Spec.DeepCopy(),
		AppImages: map[string]kuscia.AppImageSpec{
			"image": {DeployTemplates: []kuscia.DeployTemplate{{Name: "t", Replicas: new(int32(3)),
				Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{Name: "c",
					Ports: []kuscia.ContainerPort{{Name: "service", Port: 1234, Scope: kuscia.ScopeCluster}}}}}}}}}}
	former.Spec.InputConfig, former.Spec.Parties[0].AppImageRef = "old", "image"
	packed, err := former.Pack()
	require.NoError(t, err)
	party := kuscia.PartyDeploymentStatus{Phase: kuscia.PhaseAvailable, Replicas: 3, UpdatedReplicas: 3,
		AvailableReplicas: 3, ObservedAt: &now, Version: "v2"}
	kd.Status = kuscia.KusciaDeploymentStatus{Phase: kuscia.PhaseAvailable, TotalParties: 2, AvailableParties: 2,
		ObservedGeneration: 2,
		Operation: &kuscia.Operation{Kind: serving.KindUpdate, Generation: 2, WorkflowID: "serving/one/2", RunID: "run",
			StartedAt: &began, Done: true},
		Served: &kuscia.Served{Generation: 1, Version: packed},
		PartyDeploymentStatuses: map[string]map[string]kuscia.PartyDeploymentStatus{
			"alice": {"one": party}, "bob": {"one-server": party}},
	}
	return kd
}

func TestNewView(t *testing.T) {
	t.Parallel()
	cases := []struct {
		reason string
		change func(kd *kuscia.KusciaDeployment)
		check  func(t *testing.T, v serving.View)
	}{
		{"The requested version is shown, together with the serving generation.", nil,
			func(t *testing.T, v serving.View) {
				require.Equal(t, kuscia.PhaseAvailable, v.Phase)
				require.EqualValues(t, 1, v.ServedGeneration)
				require.Equal(t, "new-image", v.Parties[0].AppImage)
				require.Equal(t, "serving/one/2", v.Operation.Workflow.ID)
				require.Equal(t, "bob-queue", v.Parties[1].Queue)
			}},
		{"An AppImage that was deleted since is shown as it was when it started to serve.", nil,
			func(t *testing.T, v serving.View) {
				require.Equal(t, []serving.Endpoint{{PortName: "service", Scope: "Cluster",
					Endpoint: "one-server-service.bob.svc", Port: 1234}}, v.Parties[1].Endpoints)
				require.Equal(t, []serving.Endpoint{}, v.Parties[0].Endpoints,
					"an unknown AppImage has an empty, non-nil list")
			}},
		{"After a failed update, the serving version is shown.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.Reason = serving.ReasonUpdateRolledBack
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, "image", v.Parties[0].AppImage)
			require.EqualValues(t, 2, v.Generation, "although another version is requested")
		}},
		{"Replica counts from before an update are not shown as the new state.", func(kd *kuscia.KusciaDeployment) {
			kd.Generation = 3
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, kuscia.PhaseProgressing, v.Phase)
			require.Equal(t, "no operation has started for generation 3 of the spec yet", v.Message)
			require.Zero(t, v.AvailableParties)
			require.Equal(t, kuscia.PhaseProgressing, v.Parties[0].Phase)
			require.Zero(t, v.Parties[0].UpdatedReplicas)
			require.EqualValues(t, 3, v.Parties[0].AvailableReplicas, "these pods exist")
		}},
		{"A spec that cannot be run is reported while an operation on another one continues.",
			func(kd *kuscia.KusciaDeployment) {
				kd.Generation, kd.Status.Refused = 3, &kuscia.Refused{Generation: 3, Message: "no such AppImage"}
			}, func(t *testing.T, v serving.View) {
				require.Equal(t, kuscia.PhaseProgressing, v.Phase)
				require.Equal(t, serving.ReasonValidateFailed, v.Reason)
				require.Equal(t,
					"generation 3 of the spec cannot be run, and the current operation continues: no such "+
						"AppImage", v.Message)
			}},
		{"A refusal is not shown once there is a newer spec.", func(kd *kuscia.KusciaDeployment) {
			kd.Generation, kd.Status.Refused = 4, &kuscia.Refused{Generation: 3, Message: "no such AppImage"}
		}, func(t *testing.T, v serving.View) {
			require.Empty(t, v.Reason)
			require.Equal(t, "no operation has started for generation 4 of the spec yet", v.Message)
		}},
		{"A deletion increases the generation without a new spec.", func(kd *kuscia.KusciaDeployment) {
			kd.Generation, kd.DeletionTimestamp = 3, &metav1.Time{Time: time.Date(2026, 11, 2, 13, 0, 0, 0, time.UTC)}
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, "its deletion has not started yet", v.Message)
			require.Equal(t, 13, v.DeletedAt.Hour())
		}},
		{"Of an unobserved party only the desired state is shown.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.PartyDeploymentStatuses = nil
			kd.Status.Phase = kuscia.PhasePending
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, serving.DisplayedPending, v.Phase, "the empty phase is shown as Pending")
			require.Equal(t, serving.DisplayedPending, v.Parties[1].Phase)
			require.EqualValues(t, 3, v.Parties[1].Replicas, "from the AppImage")
			require.EqualValues(t, 1, v.Parties[0].Replicas, "the default")
		}},
		{"An unreachable party is shown even if it was never observed.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.PartyDeploymentStatuses["bob"]["one-server"] =
				kuscia.PartyDeploymentStatus{Phase: kuscia.PhaseUnknown, Unreachable: "no worker polls",
					Message: "no worker polls"}
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, kuscia.PhaseUnknown, v.Parties[1].Phase)
			require.Equal(t, "no worker polls", v.Parties[1].Unreachable)
		}},
		{"The policy is shown with its defaults.", func(kd *kuscia.KusciaDeployment) {
			kd.Annotations = map[string]string{serving.AnnotationPolicy: `{"order":"sequential"}`}
		}, func(t *testing.T, v serving.View) {
			require.Equal(t, &serving.Policy{ProgressDeadlineSeconds: 600, PartyDeadlineSeconds: 600,
				Order: serving.OrderSequential, Approval: serving.ApprovalNone}, v.Policy)
		}},
		{"A policy that cannot be parsed is not shown.", func(kd *kuscia.KusciaDeployment) {
			kd.Annotations = map[string]string{serving.AnnotationPolicy: `order: random`}
		}, func(t *testing.T, v serving.View) { require.Nil(t, v.Policy) }},
		{"A spec that cannot be run has no workflow.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.Operation = &kuscia.Operation{Kind: serving.KindRefuse, Generation: 2, Done: true,
				Reason: serving.ReasonValidateFailed}
		}, func(t *testing.T, v serving.View) { require.Nil(t, v.Operation.Workflow) }},
		{"No operation has run yet.", func(kd *kuscia.KusciaDeployment) { kd.Status = kuscia.KusciaDeploymentStatus{} },
			func(t *testing.T, v serving.View) {
				require.Nil(t, v.Operation)
				require.Equal(t, 2, v.TotalParties)
			}},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			kd := seenServing(t)
			if c.change != nil {
				c.change(kd)
			}
			v, err := serving.NewView(kd, serving.ViewContext{Queues: map[string]string{"bob": "bob-queue"}})
			require.NoError(t, err)
			c.check(t, v)
		})
	}
}

// TestNewView_ShowsEditedAppImage_WhenItIsApplied edits bob's AppImage after the served version was recorded.
func TestNewView_ShowsEditedAppImage_WhenItIsApplied(t *testing.T) {
	t.Parallel()
	const served, edited = int32(1234), int32(4321)
	image := func(port int32) kuscia.AppImageSpec {
		return kuscia.AppImageSpec{DeployTemplates: []kuscia.DeployTemplate{{Name: "t",
			Spec: kuscia.PodTemplate{Containers: []kuscia.Container{{Name: "c",
				Ports: []kuscia.ContainerPort{{Name: "service", Port: port, Scope: kuscia.ScopeCluster}}}}}}}}
	}
	cases := []struct {
		reason string
		change func(kd *kuscia.KusciaDeployment)
		want   int32
	}{
		{"Editing an AppImage changes neither what runs nor what is shown.", func(*kuscia.KusciaDeployment) {}, served},
		{"A serving without an operation shows the served version.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.Operation = nil
		}, served},
		{"The served version is being restored.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.Operation.Done, kd.Status.Operation.Version = false, "served"
		}, served},
		{"Another version is being applied, with the current AppImages.", func(kd *kuscia.KusciaDeployment) {
			kd.Status.Operation.Done, kd.Status.Operation.Version = false, "another"
		}, edited},
		{"An update was requested, and will take the current AppImages.", func(kd *kuscia.KusciaDeployment) {
			kd.Generation++
		}, edited},
		{"No version has served yet.", func(kd *kuscia.KusciaDeployment) { kd.Status.Served = nil }, edited},
	}
	for _, c := range cases {
		t.Run(c.reason, func(t *testing.T) {
			t.Parallel()
			kd := seenServing(t)
			kd.Status.Served.Digest = "served"
			c.change(kd)
			v, err := serving.NewView(kd, serving.ViewContext{Images: map[string]kuscia.AppImageSpec{"image": image(
				edited), "new-image": image(edited)}})
			require.NoError(t, err)
			require.Equal(t, c.want, v.Parties[1].Endpoints[0].Port)
			require.Equal(t, edited, v.Parties[0].Endpoints[0].Port,
				"an AppImage that the served version lacks is shown in its current form")
		})
	}
}

func TestNewView_Fails_WhenServedVersionIsCorrupt(t *testing.T) {
	t.Parallel()
	kd := seenServing(t)
	kd.Status.Served.Version = []byte("torn")
	_, err := serving.NewView(kd, serving.ViewContext{})
	require.ErrorContains(t, err, "a version of a serving cannot be read")
}

func TestUpdatePhases_ReportsNoMissingObjects_DuringDeletion(t *testing.T) {
	t.Parallel()
	kd := seenServing(t)
	kd.Status.Operation = &kuscia.Operation{Kind: serving.KindDelete, Generation: 3}
	missing := kd.Status.PartyDeploymentStatuses["alice"]["one"]
	missing.Missing = []string{"Service/one-service"}
	kd.Status.PartyDeploymentStatuses["alice"]["one"] = missing
	serving.UpdatePhases(kd)
	require.Equal(t, kuscia.PhaseProgressing, kd.Status.Phase)
	require.Empty(t, kd.Status.Reason)
	require.Equal(t, "party alice: its objects are being removed; already deleted: Service/one-service",
		kd.Status.Message)
}
