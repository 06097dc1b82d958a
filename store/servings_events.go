package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"slipway.io/slipway/kube"
	kuscia "slipway.io/slipway/release/kuscia/v1alpha1"
)

// servingEvents notifies subscribers of changes of a serving, by one watch for all of them. The watch delivers metadata
// only: a subscriber reads the serving itself.
type servingEvents struct {
	informer  cache.SharedIndexInformer
	followers kube.Subscriptions[string]
}

func (s *Store) newServingEvents() (*servingEvents, error) {
	informer := metadatainformer.NewFilteredMetadataInformer(s.metadata, kuscia.KusciaDeploymentResource,
		s.servingNamespace, 0,
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
		AddFunc: events.notify, UpdateFunc: func(_, object any) { events.notify(object) }, DeleteFunc: events.notify,
	})
	return events, err
}

func (e *servingEvents) notify(object any) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
	if err != nil {
		return
	}
	if _, id, err := cache.SplitMetaNamespaceKey(key); err == nil {
		e.followers.Notify(id)
	}
}

// FollowServing notifies about changes of a serving, including its deletion, until leave is called. Changes that arrive
// faster than they are received are merged. Without Run there are no notifications.
func (s *Store) FollowServing(id string) (changed <-chan struct{}, leave func()) {
	return s.events.followers.Subscribe(id)
}
