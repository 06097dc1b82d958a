package api

import (
	"context"

	"slipway.io/slipway/release/catalog"
	"slipway.io/slipway/release/plan"
	"slipway.io/slipway/release/v1alpha1"
)

// Home is what the front door reads and writes in the home cluster. Errors are failure.Error with the kinds NotFound, Conflict, Refused,
// Forbidden and Unreachable.
type Home interface {
	serviceStore
	planStore
	recordStore
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

type recordStore interface {
	CreateRecord(ctx context.Context, record *v1alpha1.ReleaseRecord) error
	GetRecord(ctx context.Context, task string) (*v1alpha1.ReleaseRecord, error)
	// ListRecords and FindRecords list the records with these labels, newest first, without their bodies: the first cheaply and as far as
	// this process has heard, the second as they are now.
	ListRecords(ctx context.Context, with map[string]string) ([]v1alpha1.ReleaseRecord, error)
	FindRecords(ctx context.Context, with map[string]string) ([]v1alpha1.ReleaseRecord, error)
	DeleteRecord(ctx context.Context, task string) error
}
