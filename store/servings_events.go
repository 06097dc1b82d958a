package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// servingEvents tells whoever follows a serving that it has changed, by one watch for all of them. The watch brings no bodies: who is told
// reads the serving as it is then.
type servingEvents struct {
	informer  cache.SharedIndexInformer
	followers kube.Subscriptions[string]
}

func (s *Store) newServingEvents() (*servingEvents, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, kuscia.KusciaDeploymentResource, s.servingNamespace, 0,
		cache.Indexers{}, nil).Informer()
	events := &servingEvents{informer: informer}
	err := informer.SetTransform(func(value any) (any, error) {
		if object, ok := value.(*metav1.PartialObjectMetadata); ok {
			object.ManagedFields, object.Annotations = nil, nil
		}
		return value, nil
	})
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: events.tell, UpdateFunc: func(_, object any) { events.tell(object) }, DeleteFunc: events.tell,
	})
	return events, err
}

func (e *servingEvents) tell(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	if _, id, err := cache.SplitMetaNamespaceKey(key); err == nil {
		e.followers.Notify(id)
	}
}

// FollowServing tells of changes of a serving, its deletion included, until leave is called. Changes that come faster than they are
// received are told as one. It tells nothing unless Run was called.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	return s.events.followers.Subscribe(id)
}
