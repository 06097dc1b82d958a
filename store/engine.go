package store

import (
	"cmp"
	"context"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workload"
)

// The ConfigMap in the engine's namespace with its identity.
const (
	engineObject  = "slipway-engine"
	engineKeyUID  = "uid"
	engineKeyName = "name"
)

// SetEngineName sets the engine's display name; "": its namespace. Call it before Engine. A process that does not call
// it uses the stored name.
func (s *Store) SetEngineName(name string) {
	s.engineName = cmp.Or(name, s.namespace)
}

// Engine returns this engine as its claims name it. The first process creates the UID, which stays the same as long as
// the ConfigMap exists.
func (s *Store) Engine(ctx context.Context) (workload.Engine, error) {
	s.engineMu.Lock()
	defer s.engineMu.Unlock()
	if s.engine.UID != "" {
		return s.engine, nil
	}
	var engine workload.Engine
	err := failure.RetryOnConflict("ConfigMap "+engineObject, func() (err error) {
		engine, err = s.readEngine(ctx)
		return err
	})
	if err == nil {
		s.engine = engine
	}
	return engine, err
}

func (s *Store) readEngine(ctx context.Context) (workload.Engine, error) {
	var none workload.Engine
	ctx, cancel := bounded(ctx)
	defer cancel()
	maps, object := s.core.ConfigMaps(s.namespace), "ConfigMap "+s.namespace+"/"+engineObject
	found, err := maps.Get(ctx, engineObject, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		fresh := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: engineObject},
			Data: map[string]string{engineKeyUID: uuid.NewString(), engineKeyName: cmp.Or(s.engineName, s.namespace)}}
		found, err = maps.Create(ctx, fresh, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // another process of this engine was faster
			found, err = maps.Get(ctx, engineObject, metav1.GetOptions{})
		}
	}
	if err != nil {
		return none, asFailure(err, object)
	}
	if found.Data[engineKeyUID] == "" {
		return none, failure.New(failure.Refused, "%s has no %s: restore the one in the claims of this engine's "+
			"releases, or delete "+
			"the ConfigMap if no release is in progress", object, engineKeyUID)
	}
	if s.engineName != "" && found.Data[engineKeyName] != s.engineName {
		found.Data[engineKeyName] = s.engineName
		if found, err = maps.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
			return none, asFailure(err, object)
		}
	}
	return workload.Engine{UID: found.Data[engineKeyUID], Name: found.Data[engineKeyName]}, nil
}
