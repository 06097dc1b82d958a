-- Istio DestinationRule: the subset of the new version's pods, for a VirtualService without a canary Service.
-- The pods get the label by patchPodTemplateMetadata.
local spec = obj.data.spec
local first = string.match(spec.host or "", "^([^.]+)")
if first ~= obj.stableService then
  refuse("", "the DestinationRule is for host " .. (spec.host or "") .. ", not for Service " .. obj.stableService)
end
spec.subsets = spec.subsets or {}
for _, subset in ipairs(spec.subsets) do
  if subset.name == "canary" then
    refuse("", "the DestinationRule has a subset canary already: rename it, since a release adds one of that name")
  end
end
spec.subsets[#spec.subsets + 1] = { name = "canary", labels = { ["istio.service.tag"] = "gray" } }
return obj.data
