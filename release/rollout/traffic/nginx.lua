-- Canary annotations of ingress-nginx, which higress reads as well: by one header, by one cookie, or by weight.
-- What these annotations cannot express is refused.
local prefix = "nginx.ingress.kubernetes.io/"
local annotations = obj.annotations

for _, key in ipairs({
  "canary", "canary-by-cookie", "canary-by-header", "canary-by-header-pattern", "canary-by-header-value",
  "canary-weight", "canary-weight-total",
}) do
  annotations[prefix .. key] = nil
end

if obj.stableService == obj.canaryService then
  refuse("", "class " .. obj.class .. " tells the versions apart by their Services, and there is no canary Service here")
end
if obj.requestHeaderModifier then
  refuse("requestHeaderModifier", "class " .. obj.class .. " cannot change the headers of requests to the new version only")
end

annotations[prefix .. "canary"] = "true"
if obj.weight ~= "-1" then
  annotations[prefix .. "canary-weight"] = obj.weight
end

local header, cookie
for i, match in ipairs(obj.matches or {}) do
  local here = "matches[" .. (i - 1) .. "]"
  if match.path then
    refuse(here .. ".path", "class " .. obj.class .. " cannot match by path: use an HTTPRoute, or headers")
  end
  if match.queryParams and #match.queryParams > 0 then
    refuse(here .. ".queryParams", "class " .. obj.class .. " cannot match by query parameter: use an HTTPRoute, or headers")
  end
  if not match.headers or #match.headers ~= 1 then
    refuse(here .. ".headers", "class " .. obj.class .. " compares exactly one header in a match")
  end
  local wanted = match.headers[1]
  local regular = wanted.type == "RegularExpression"
  if not wanted.value or wanted.value == "" then
    refuse(here .. ".headers[0].value", "class " .. obj.class .. " cannot ask for an empty value")
  end
  if wanted.name == "canary-by-cookie" then
    if regular then
      refuse(here .. ".headers[0].type", "class " .. obj.class .. " compares a cookie's name exactly")
    end
    if cookie and cookie ~= wanted.value then
      refuse(here, "class " .. obj.class .. " compares one cookie only")
    end
    cookie = wanted.value
    annotations[prefix .. "canary-by-cookie"] = cookie
  else
    if header then
      refuse(here, "class " .. obj.class .. " compares one header only: one match by header, and one by cookie, can be asked for")
    end
    header = wanted.name
    annotations[prefix .. "canary-by-header"] = header
    if regular then
      annotations[prefix .. "canary-by-header-pattern"] = wanted.value
    else
      annotations[prefix .. "canary-by-header-value"] = wanted.value
    end
  end
end

return annotations
