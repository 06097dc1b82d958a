package backend

import (
	"context"
	"encoding/json"

	"slipway.io/slipway/release/catalog"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// Home is what the front door reads and writes in the home cluster. Errors are failure.Error with the kinds NotFound, Conflict, Refused,
// Forbidden and Unreachable.
type Home interface {
	serviceStore
	planStore
	recordStore
	releaseStore
	trafficStore
	partyStore
	servingStore
	// DefaultNamespace is the namespace that a party's workloads are in unless a request says otherwise; "" when it has none of its own.
	DefaultNamespace(ctx context.Context, party string) (string, error)
	// Queue is the task queue of a party; known is false for a party that does not exist.
	Queue(ctx context.Context, party string) (queue string, known bool, err error)
	// CheckCluster and CheckCRDs say what is wrong when the cluster, or the engine's kinds in it, cannot be read.
	CheckCluster(ctx context.Context) error
	CheckCRDs(ctx context.Context) error
}

type serviceStore interface {
	// ListServices reads one page in order of name; next is "" on the last one.
	ListServices(ctx context.Context, limit int, cursor string) (items []v1alpha1.ReleaseService, next string, err error)
	GetService(ctx context.Context, id string) (*v1alpha1.ReleaseService, error)
	// GetServices leaves out what the catalogue does not have.
	GetServices(ctx context.Context, ids []plan.ServiceID) (map[plan.ServiceID]catalog.Service, error)
	// PutService writes nothing when the service is already so: changed is false then.
	PutService(ctx context.Context, id string, spec catalog.Service) (created, changed bool, err error)
	DeleteService(ctx context.Context, id string) error
}

type planStore interface {
	ListPlans(ctx context.Context, limit int, cursor string) (items []v1alpha1.DeployPlan, next string, err error)
	GetPlan(ctx context.Context, name string) (*v1alpha1.DeployPlan, error)
	PutPlan(ctx context.Context, name string, document plan.Document) (created, changed bool, err error)
	// DeletePlan and ClaimPlan are a Conflict when the plan is no longer at that resourceVersion.
	DeletePlan(ctx context.Context, name, resourceVersion string) error
	ClaimPlan(ctx context.Context, name, resourceVersion, task string) error
}

type releaseStore interface {
	// GetRelease and DeleteRelease take the name of the record itself.
	GetRelease(ctx context.Context, record string) (*v1alpha1.ReleaseRecord, error)
	DeleteRelease(ctx context.Context, record string) error
}

type trafficStore interface {
	ListTrafficRoutings(ctx context.Context, namespace string, limit int, cursor string) (items []v1alpha1.TrafficRouting, next string,
		err error)
	GetTrafficRouting(ctx context.Context, namespace, name string) (*v1alpha1.TrafficRouting, error)
	// PutTrafficRouting creates, or replaces the one that was read as stored; a change since is a Conflict.
	PutTrafficRouting(ctx context.Context, namespace, name string, spec json.RawMessage, stored *v1alpha1.TrafficRouting) (changed bool,
		err error)
	DeleteTrafficRouting(ctx context.Context, stored *v1alpha1.TrafficRouting) error
}

type partyStore interface {
	// ListParties reads all Party objects in order of name. GetParty is NotFound for a party that has none, though Queue may know it.
	ListParties(ctx context.Context) ([]v1alpha1.Party, error)
	GetParty(ctx context.Context, name string) (*v1alpha1.Party, error)
	PutParty(ctx context.Context, name string, spec v1alpha1.PartySpec) (created, changed bool, err error)
	// DeleteParty is a Conflict when the object is no longer the one that was read as stored.
	DeleteParty(ctx context.Context, stored *v1alpha1.Party) error
}

type servingStore interface {
	ListServings(ctx context.Context, limit int, cursor string) (items []kuscia.KusciaDeployment, next string, err error)
	// GetServing reads also one that is being deleted.
	GetServing(ctx context.Context, id string) (*kuscia.KusciaDeployment, error)
	GetAppImage(ctx context.Context, name string) (*kuscia.AppImage, error)
	// AnnotateServing is a Conflict when the serving has changed since it was read.
	AnnotateServing(ctx context.Context, kd *kuscia.KusciaDeployment, key, value string) error
	// FollowServing tells of changes of a serving until leave is called; several that come fast may be told as one.
	FollowServing(id string) (changed <-chan struct{}, leave func())
}

type recordStore interface {
	CreateRecord(ctx context.Context, record *v1alpha1.ReleaseRecord) error
	GetRecord(ctx context.Context, task string) (*v1alpha1.ReleaseRecord, error)
	// ListRecords and FindRecords list the records with these labels, newest first, without their bodies: the first cheaply and as far as
	// this process has heard, the second as they are now.
	ListRecords(ctx context.Context, with map[string]string) ([]v1alpha1.ReleaseRecord, error)
	FindRecords(ctx context.Context, with map[string]string) ([]v1alpha1.ReleaseRecord, error)
	DeleteRecord(ctx context.Context, task string) error
}
