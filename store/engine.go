package store

import (
	"cmp"
	"context"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"slipway.io/slipway/release/failure"
	"slipway.io/slipway/release/workloadops"
)

// The ConfigMap of the engine's namespace that says which engine it is.
const (
	engineObject  = "slipway-engine"
	engineKeyUID  = "uid"
	engineKeyName = "name"
)

// NameEngine says how people call the engine; "": by its namespace. It is to be called before Engine; a process that doesn't call it goes
// by what another one has written.
func (s *Store) NameEngine(name string) {
	s.engineName = cmp.Or(name, s.namespace)
}

// Engine is this engine, as its claims name it. Its UID is made once, by the process that comes first, and stays as long as its ConfigMap.
func (s *Store) Engine(ctx context.Context) (workloadops.Engine, error) {
	s.engineMu.Lock()
	defer s.engineMu.Unlock()
	if s.engine.UID != "" {
		return s.engine, nil
	}
	var engine workloadops.Engine
	err := failure.UntilNoConflict("ConfigMap "+engineObject, func() (err error) {
		engine, err = s.readEngine(ctx)
		return err
	})
	if err == nil {
		s.engine = engine
	}
	return engine, err
}

func (s *Store) readEngine(ctx context.Context) (workloadops.Engine, error) {
	var none workloadops.Engine
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
		return none, failed(err, object)
	}
	if found.Data[engineKeyUID] == "" {
		return none, failure.New(failure.Refused, "%s has no %s: put back the one that the claims of this engine's releases name, or delete "+
			"the ConfigMap if no release is under way", object, engineKeyUID)
	}
	if s.engineName != "" && found.Data[engineKeyName] != s.engineName {
		found.Data[engineKeyName] = s.engineName
		if found, err = maps.Update(ctx, found, metav1.UpdateOptions{}); err != nil {
			return none, failed(err, object)
		}
	}
	return workloadops.Engine{UID: found.Data[engineKeyUID], Name: found.Data[engineKeyName]}, nil
}
